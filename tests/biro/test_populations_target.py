"""What is sampled for a population is the likelihood and the prior of ordinary models; what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import biro
from biro.errors import InputError
from biro.models import (
    Bounds,
    HalfNormal,
    LogUniform,
    Noise,
    Normal,
    NumberPrior,
    PointSource,
    Population,
    SkyModel,
    Uniform,
)
from biro.models.components.population import log_share
from biro.source_finding.populations.fit import _likelihood
from biro.source_finding.populations.space import NO_SOURCE

C = 299792458.0


def observation() -> biro.Observation:
    """Noise on 40 baselines of up to 2 km at 6 cm, two channels."""
    rng, n = np.random.default_rng(5), 40
    uvw = np.column_stack([rng.uniform(-2000.0, 2000.0, (n, 2)), np.zeros(n)])
    return biro.Observation.from_arrays(
        vis=rng.normal(size=(n, 2, 2)) + 1j * rng.normal(size=(n, 2, 2)),
        uvw=uvw,
        antenna1=np.zeros(n, int),
        antenna2=np.ones(n, int),
        time=np.arange(float(n)),
        chan_freq=[C / 0.06, 1.1 * C / 0.06],
        corr_type=["RR", "LL"],
        weight=np.ones((n, 2, 2)),
        phase_centre=(1.0, 0.5),
    )


def population(**given: object) -> Population:
    place = Uniform(-10.0, 10.0, "arcsec")
    flux = LogUniform("0.1 Jy", "3 Jy")
    return Population(
        "field", **{"number": NumberPrior("uniform", high=5), "I": flux, "place": place} | given
    )  # type: ignore[arg-type]


BOTH = {"types": ["point", "gaussian"], "emaj": HalfNormal("4 arcsec"), "ratio": Uniform(0, 1)}
BOTH |= {"pa": Uniform("0 deg", "180 deg")}
INDEX = {"spectral_index": Normal(-0.7, 0.3), "ref_freq": "5 GHz"}
AXES = {"types": ["gaussian"], "emaj": Uniform("0 arcsec", "2 arcsec"), "pa": "0 deg"}
CASES: dict[str, dict[str, object]] = {
    "points": {},
    "both": BOTH,
    "circles": {"types": ["gaussian"], "fwhm": "3 arcsec"},
    "index": {**BOTH, **INDEX},
    "fixed index": {"spectral_index": -0.7, "ref_freq": "5 GHz"},
    "V": {"V": Normal(0.0, 0.1, "Jy")},
    "fraction": {"v_fraction": 0.1},
}


@pytest.mark.parametrize("given", CASES.values(), ids=CASES)
def test_a_state_is_the_model_with_so_many_sources(given: dict[str, object]) -> None:
    """ln L, its slopes and the prior of rows, beside those of the models that `with_number` makes."""
    data = observation()
    core = PointSource("core", east="1 arcsec", north="0 arcsec", I=Uniform("0 Jy", "2 Jy"))
    sky = SkyModel([core], populations=[population(**given)], noise=Noise(factor=Uniform(0.5, 2)))
    (members,) = sky.populations
    states = _likelihood(data, sky, members, "sample", {"smearing": "off"})
    space = states.space
    rows = space.draw(np.random.default_rng(3), 30)
    number, heights, (again, slopes) = space.number(rows), states.heights(rows), states.slopes(rows)
    assert np.allclose(again, heights, rtol=1e-12)
    assert set(number) == {0, 1, 2, 3, 4, 5}
    for i, row in enumerate(rows):
        slots = space.slots_of(row[None])[0]
        slots = slots[slots[:, 0] != NO_SOURCE]
        kinds = [members.types[int(kind)] for kind in slots[:, 0]]
        whole = biro.Likelihood(data, sky.with_number({"field": kinds}), smearing="off")
        values = dict(zip([p.name for p in space.shared], space.shared_of(row[None])[0], strict=True))
        for k, slot in enumerate(slots):
            values |= {f"field{k + 1}.{q.key}": x for q, x in zip(space.quantities, slot[1:], strict=True)}
        theta = np.array([values[name] for name in whole.parameter_names])
        expected, slope = whole.log_likelihood_and_gradient(theta)
        # Sums of 160 terms in another order.
        assert heights[i] == pytest.approx(expected, rel=1e-11)
        found = dict(zip(whole.parameter_names, slope, strict=True))
        for k in range(len(slots)):
            for j, quantity in enumerate(space.quantities):
                name = f"field{k + 1}.{quantity.key}"
                if name in found:
                    value = space.slots_of(slopes[i][None])[0, k, 1 + j]
                    assert value == pytest.approx(found[name], rel=1e-8, abs=1e-8), name
        of_kinds = space.log_prior(row[None])[0] - whole.log_prior(theta) - members.number.log_pmf(len(slots))
        counts = [kinds.count(kind) for kind in members.types]
        assert of_kinds == pytest.approx(float(log_share(np.array(counts))), abs=1e-9)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"V": "0.1 Jy"}, "V is one value for all sources"),
        ({**BOTH, "emaj": None, "ratio": None, "pa": None, "fwhm": "3 arcsec"}, "fwhm is one value"),
        ({"V": Normal(0.0, 0.1, "Jy", marginalise=True)}, "field1.V has marginalise = true"),
        (AXES | {"emin": Uniform("0 arcsec", "2 arcsec")}, "is ordered with that of another"),
        (AXES | {"emin": Uniform("0 arcsec", "1.9 arcsec")}, "allow sources that cannot be"),
        ({"number": NumberPrior("uniform", high=900)}, "expected 200 at most"),
        ({"I": "1 Jy"}, "I needs a prior"),
    ],
)
def test_refusals(given: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        biro.fit_population(observation(), SkyModel([], populations=[population(**given)]), progress=False)


def test_a_constraint_is_refused() -> None:
    core = PointSource("core", east="1 arcsec", north="0 arcsec", I=Uniform("0 Jy", "2 Jy"))
    sky = SkyModel([core], populations=[population()], constraints=[Bounds("core.I", high="0.1 Jy")])
    with pytest.raises(InputError, match=r"\[\[constraint\]\]"):
        biro.fit_population(observation(), sky, progress=False)
