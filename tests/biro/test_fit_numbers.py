"""The evidence of each number of sources against quadrature, and what is made of it."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from commands import biro as command
from numpy.typing import NDArray
from scipy import integrate, special

import biro
from biro.errors import InputError, RunError
from biro.many_fits.fit_numbers import with_ordered
from biro.many_fits.number_table import NumberTable, Rung
from biro.models import Noise, NumberPrior, Order, Population, SkyModel, Uniform

Array = NDArray[np.float64]
C = 299792458.0
ARCSEC = np.pi / 180.0 / 3600.0
HIGH, HALF = 2.0, 20.0
"""Prior of fluxes, 0 .. HIGH Jy, and of the east offset, within HALF arcsec."""
NUMBER = NumberPrior("poisson", mean=1, high=6)
FIXED = Noise(factor=1.0)


def on_a_line(sources: list[tuple[float, float]], noise: float, seed: int = 7) -> biro.Observation:
    """XX and YY of sources (flux, east offset in arcsec) on 40 east-west baselines of up to 600 m at 6 cm."""
    rng, n = np.random.default_rng(seed), 40
    uvw = np.column_stack([rng.uniform(-600.0, 600.0, n), np.zeros(n), np.zeros(n)])
    vis = np.zeros((n, 1, 2), complex)
    for flux, east in sources:
        vis += flux * np.exp(2j * np.pi * uvw[:, 0] / 0.06 * east * ARCSEC)[:, None, None]
    vis += noise * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
    return biro.Observation.from_arrays(
        vis=vis,
        uvw=uvw,
        antenna1=np.zeros(n, int),
        antenna2=np.ones(n, int),
        time=np.arange(float(n)),
        chan_freq=[C / 0.06],
        corr_type=["XX", "YY"],
        weight=np.full((n, 1, 2), noise**-2.0),
    )


def population(**changes: object) -> Population:
    east = Uniform(-HALF, HALF, "arcsec")
    given = {"number": NUMBER, "I": Uniform(0.0, HIGH, "Jy"), "east": east, "north": "0 arcsec"}
    return Population("s", **(given | changes))


def model(**changes: object) -> SkyModel:
    return SkyModel([], populations=population(**changes), noise=FIXED)


def exact(data: biro.Observation, n_east: int = 121, n_flux: int = 61) -> Array:
    """ln Z of 0, 1 and 2 sources by Gauss-Legendre quadrature over all offsets and fluxes, in no order.

    Nodes lie 2 sigma apart at most where the posterior is narrowest, and less than a tenth of a fringe.
    """
    part = data.partitions[0]
    w, vis, u = part.weight.ravel(), part.vis.ravel(), np.repeat(part.uvw[:, 0], 2) / 0.06
    empty = np.log(w / (2.0 * np.pi)).sum() - 0.5 * (w * np.abs(vis) ** 2).sum()
    (x, of_east), (y, of_flux) = (np.polynomial.legendre.leggauss(n) for n in (n_east, n_flux))
    east, of_east = x * HALF * ARCSEC, of_east / 2.0
    flux, of_flux = (y + 1.0) / 2.0 * HIGH, of_flux / 2.0
    fringe = np.exp(2j * np.pi * np.outer(east, u))
    on_data, mutual = (w * vis.conj() * fringe).sum(axis=1).real, ((fringe * w) @ fringe.conj().T).real
    alone = np.outer(on_data, flux) - 0.5 * np.outer(mutual.diagonal(), flux**2)
    one = special.logsumexp(alone, b=of_east[:, None] * of_flux)
    two = []
    for i in range(n_east):
        both = alone[i][None, :, None] + alone[:, None, :]
        both = both - mutual[i][:, None, None] * np.outer(flux, flux)
        two.append(
            special.logsumexp(both, b=of_east[i] * of_east[:, None, None] * np.outer(of_flux, of_flux))
        )
    return np.array([0.0, one, special.logsumexp(two)]) + empty


def test_two_equal_sources_have_the_evidence_of_exchangeable_ones() -> None:
    """An order of sources takes 2! of the prior away, and the density gives it back."""
    data = on_a_line([(1.0, -8.0), (1.0, 5.0)], 1.0)
    truth = exact(data)
    table = biro.fit_numbers(data, model(), range(3), seed=1, progress=False)
    assert [rung.n_param for rung in table.rungs] == [0, 2, 4]
    # Without parameters the evidence is the likelihood: rounding of a sum of 80.
    assert table[0].log_evidence == pytest.approx(truth[0], rel=1e-12)
    for k in (1, 2):
        assert table[k].sampler == "none"
        assert table[k].log_evidence_err < 0.05
        # Four errors; ln 2! would be 25.
        assert abs(table[k].log_evidence - truth[k]) < 4.0 * table[k].log_evidence_err
    assert table.best == 2


def test_the_number_in_an_empty_field(tmp_path: Path) -> None:
    """The maximum says nothing of a source that is not there: dynesty follows, in another directory."""
    data, run = on_a_line([], 3.0), tmp_path / "run"
    truth = exact(data)[:2]
    table = biro.fit_numbers(data, model(), range(2), run_dir=run, seed=1, progress=False)
    assert [rung.sampler for rung in table.rungs] == ["exact", "dynesty"]
    assert abs(table[1].log_evidence - truth[1]) < 4.0 * table[1].log_evidence_err
    weight = np.exp(truth - truth.max())  # a Poisson prior of mean 1 gives 0 and 1 equal parts
    # The error of P(1) / P(0) is that of ln Z, 0.05.
    np.testing.assert_allclose(table.probability, weight / weight.sum(), rtol=0.2)
    assert {path.name for path in run.iterdir()} == {"1", "1-dynesty", "numbers.json"}
    saved = json.loads((run / "numbers.json").read_text())
    assert saved["numbers"]["1"]["log_evidence"] == table[1].log_evidence
    # The same call reads what is there.
    written = (run / "1-dynesty/posterior.nc").stat().st_mtime_ns
    assert biro.fit_numbers(data, model(), range(2), run_dir=run, seed=1, progress=False) == table
    assert (run / "1-dynesty/posterior.nc").stat().st_mtime_ns == written


def test_fluxes_alone_at_one_place() -> None:
    """Sources at one place have the likelihood of their sum, whose prior is that of Irwin and Hall."""
    data = on_a_line([(1.5, 0.0)], 2.0)
    part = data.partitions[0]
    w, vis = part.weight.ravel(), part.vis.ravel()
    empty = float(np.log(w / (2.0 * np.pi)).sum() - 0.5 * (w * np.abs(vis) ** 2).sum())
    sums, squares = float((w * vis.real).sum()), float(w.sum())

    def evidence(k: int) -> float:
        def density(x: float) -> float:
            terms = [
                (-1) ** j * math.comb(k, j) * max(x - j, 0.0) ** (k - 1) for j in range(math.floor(x) + 1)
            ]
            irwin_hall = sum(terms) / math.factorial(k - 1)
            return irwin_hall * math.exp(sums * x * HIGH - 0.5 * squares * (x * HIGH) ** 2)

        return empty + math.log(sum(integrate.quad(density, *ends)[0] for ends in pairwise(range(k + 1))))

    sky = model(east="0 arcsec")
    table = biro.fit_numbers(data, sky, (1, 3), "dynesty", seed=1, progress=False, n_live=200)
    for k in (1, 3):
        assert abs(table[k].log_evidence - evidence(k)) < 4.0 * table[k].log_evidence_err
        assert table[k].log_evidence_err < 0.3  # ln 3! is 1.8


def rung(number: int, log_evidence: float, error: float, **more: object) -> Rung:
    return Rung(number, log_evidence, error, 3 * number, -10.0, "none", **more)


def test_probabilities_and_their_errors() -> None:
    """Two numbers have P = 1 / (1 + e^-d), and d = ln (P1 Z1) - ln (P0 Z0) is normal."""
    prior = NUMBER.log_pmf([0, 1])
    table = NumberTable("s", (rung(0, -100.0, 0.3), rung(1, -99.0, 0.4)), tuple(prior), 0, 6)
    np.testing.assert_allclose(table.probability, special.expit([-1.0, 1.0]), rtol=1e-12)
    # The percentiles of 20000 draws are known to 1.3 / sqrt(20000) of an error: 0.005 in d.
    np.testing.assert_allclose(table.interval[1], special.expit([0.5, 1.5]), atol=0.005)
    assert table.best == 1


def test_what_the_table_says() -> None:
    prior = tuple(NUMBER.log_pmf([0, 1]))
    shaky = NumberTable("s", (rung(0, -100.0, 0.1), rung(1, -99.0, 0.1, is_trusted=False)), prior, 0, 6)
    text = str(shaky)
    assert "LARGER NUMBERS ARE MISSING: P(1) = 0.73 at the end of the range. Go on with --number 0:4" in text
    assert "NOT TRUSTED: the evidence of 1" in text
    assert "-99.00?" in text
    small = rung(1, -90.0, 0.1, warnings=("THE MODEL DOES NOT FIT",))
    calm = NumberTable("s", (rung(0, -150.0, 0.1, warnings=("of an improbable one",)), small), prior, 0, 1)
    assert calm.warnings() == ["1: THE MODEL DOES NOT FIT"]
    one = NumberTable("s", (rung(1, -99.0, 0.1),), (0.0,), 0, 1)
    assert one.warnings() == [
        "SMALLER NUMBERS ARE MISSING: P(1) = 1.0 at the end of the range. Go on with --number 0:1"
    ]
    assert "< 1e-06" in str(calm)
    assert calm.to_dict()["numbers"]["1"]["interval_68"] == calm.interval[1].tolist()


def test_sources_are_ordered_by_what_is_fitted() -> None:
    def order(**changes: object) -> tuple[object, ...]:
        return with_ordered(model(**changes), 3).constraints

    assert order() == (Order(["s1.I", "s2.I", "s3.I"]),)
    assert order(I="1 Jy") == (Order(["s1.east", "s2.east", "s3.east"]),)
    assert order(I="1 Jy", east="0 mas") == ()
    assert with_ordered(model(), 1).constraints == ()


TEXT = """
[[population]]
name = "s"
number = { prior = "uniform", high = 4 }
I = { prior = "log-uniform", low = "1 mJy", high = "1 Jy" }
place = { prior = "uniform", low = "-1 arcmin", high = "1 arcmin" }
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--number", "3"], "expected the lowest and the highest number, such as 0:8, got '3'"),
        (["--number", "3:1"], "expected the lowest and the highest number"),
        (["--number", "0:8"], "has 0 to 4 sources by its prior, and 5 is asked for"),
        (["--number", "0:2", "--sampler", "nuts"], "evidences, which nuts does not give"),
        (["--number", "0:2", "--set", "n_live=9"], "n_live: an option needs its sampler"),
        (["--number", "0:2", "--each"], "--number and --each exclude each other"),
    ],
)
def test_the_command_refuses_what_cannot_be(tmp_path: Path, options: list[str], words: str) -> None:
    """Before any data are read: there are none here."""
    (tmp_path / "sky.toml").write_text(TEXT)
    code, _, said = command(
        "fit", tmp_path / "none.ms", tmp_path / "sky.toml", "-o", tmp_path / "run", *options
    )
    assert code == 2
    assert words in " ".join(said.split())


def test_models_that_have_no_number_to_find(tmp_path: Path) -> None:
    data = on_a_line([], 1.0)
    with pytest.raises(InputError, match=r"one population \(\[\[population\]\] in the model\), found none"):
        biro.fit_numbers(data, model().with_number({"s": 1}), range(2))
    two = SkyModel([], populations=[population(), Population("t", number=NUMBER, I="1 Jy")])
    with pytest.raises(InputError, match=r"one population .* found s, t"):
        biro.fit_numbers(data, two, range(2))
    with pytest.raises(InputError, match="has the types point, gaussian; numbers of sources are"):
        biro.fit_numbers(data, model(types=["point", "gaussian"], fwhm="1 arcsec"), range(2))
    for wrong in (8, "0:8", [0.5]):
        with pytest.raises(InputError, match="numbers: expected a range or a list of integers"):
            biro.fit_numbers(data, model(), wrong)
    with pytest.raises(InputError, match="no numbers of sources"):
        biro.fit_numbers(data, model(), [])
    (tmp_path / "run.json").write_text('{"settings": {}}')
    with pytest.raises((RunError, InputError)):
        biro.fit_numbers(data, model(), range(2), run_dir=tmp_path)


def test_the_command(clean: Path, tmp_path: Path) -> None:
    (tmp_path / "sky.toml").write_text(TEXT + "\n[noise]\nfactor = 1\n")
    words = ("fit", clean, tmp_path / "sky.toml", "-o", tmp_path / "run", "--number", "0:1", "--seed", "1")
    code, out, said = command(*words)
    assert code == 0, said
    assert "< 1e-06" in out  # of no source, where there is one of 1 Jy
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"1", "numbers.json", "numbers.png"}
