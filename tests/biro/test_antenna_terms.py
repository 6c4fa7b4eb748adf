"""Feeds, leakage and gains from a model to visibilities: eht-imaging's exercise, simulations, commands."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import python

import biro
from biro.errors import InputError
from biro.models import (
    Feeds,
    Gain,
    GainSolutions,
    GaussianSource,
    Leakage,
    Noise,
    Normal,
    PointSource,
    SkyModel,
    Uniform,
)
from biro.simulation.gains import GainScatter
from biro.simulation.prediction import predict
from biro.simulation.simulator import Channels, Track, simulate

CIRCULAR = ("RR", "RL", "LR", "LL")
SKY = [
    PointSource("a", east="40 arcsec", north="-30 arcsec", I="2 Jy", Q="0.3 Jy", U="-0.2 Jy", V="0.1 Jy"),
    PointSource("b", east="-200 arcsec", north="100 arcsec", I="1 Jy", U="0.4 Jy"),
]


@pytest.fixture(scope="module")
def eht(data_dir: Path) -> dict[str, np.ndarray]:
    with np.load(data_dir / "truth/jones/eht.npz") as file:
        return dict(file)


def eht_observation(
    eht: dict[str, np.ndarray], vis: np.ndarray, corr: Sequence[str], weight: np.ndarray
) -> biro.Observation:
    """Visibilities on the rows of the exercise."""
    rows = [eht[name] for name in ("uvw", "antenna1", "antenna2", "time", "chan_freq")]
    about = {"antenna_names": list(map(str, eht["stations"])), "antenna_positions": eht["antpos"]}
    return biro.Observation.from_arrays(vis, *rows, corr, weight=weight, **about)


def noisy(eht: dict[str, np.ndarray]) -> biro.Observation:
    """The noisy data of the exercise, with eht-imaging's own angles of feeds."""
    given = eht_observation(eht, eht["vis_fr_d_g_noisy"], CIRCULAR, 1.0 / eht["sigma"][:, None, :] ** 2)
    return given.with_feed_angles([eht["field_rotation"]])


@pytest.fixture(scope="module")
def observation(eht: dict[str, np.ndarray]) -> biro.Observation:
    return noisy(eht)


def sources_of(eht: dict[str, np.ndarray]) -> list[PointSource | GaussianSource]:
    """The true sources."""
    gauss, point = json.loads(str(eht["src"]))
    common = [
        {"east": f"{k['x_uas']!r} uas", "north": f"{k['y_uas']!r} uas"}
        | {name: f"{value!r} Jy" for name, value in zip("IQUV", k["stokes"], strict=True)}
        for k in (gauss, point)
    ]
    shape = {key: f"{gauss[f'{key[1:]}_uas']!r} uas" for key in ("emaj", "emin")}
    return [
        GaussianSource("g", **shape, pa=f"{gauss['pa_deg']!r} deg", **common[0]),
        PointSource("p", **common[1]),
    ]


def leakage_of(eht: dict[str, np.ndarray]) -> Leakage:
    triples = zip(map(str, eht["stations"]), eht["d_r"], eht["d_l"], strict=True)
    return Leakage(antenna={name: {"d_r": complex(r), "d_l": complex(left)} for name, r, left in triples})


def gain_of(eht: dict[str, np.ndarray]) -> Gain:
    names = tuple(map(str, eht["stations"]))
    gain = eht["gain"][:, :, None]
    table = GainSolutions("", eht["times"], eht["chan_freq"], names, gain, np.ones(gain.shape, bool))
    return Gain(table=table)


def instrument_of(eht: dict[str, np.ndarray]) -> dict[str, object]:
    return {"feeds": Feeds(rotation="present"), "leakage": leakage_of(eht), "gain": gain_of(eht)}


@pytest.mark.parametrize(
    ("name", "parts", "rotation"),
    [
        ("vis_ideal", (), "none"),
        ("vis_fr", (), "present"),
        ("vis_fr_d", ("leakage",), "present"),
        ("vis_d_frcal", ("leakage",), "corrected"),
        ("vis_fr_d_g", ("leakage", "gain"), "present"),
    ],
)
def test_visibilities_are_those_of_eht_imaging(
    eht: dict[str, np.ndarray],
    observation: biro.Observation,
    name: str,
    parts: tuple[str, ...],
    rotation: str,
) -> None:
    given = {key: value for key, value in instrument_of(eht).items() if key in parts}
    sky = SkyModel(sources_of(eht), centre=(0.0, 0.0), feeds=Feeds(rotation=rotation), **given)
    (found,) = predict(observation, sky, backend="cpu")
    # The README has 7e-13, for eht-imaging's pi of 13 digits; phases of 1e10 wavelengths are good to 1e-12.
    assert np.linalg.norm(found - eht[name]) < 1e-11 * np.linalg.norm(eht[name])


def test_chi2_of_the_truth(eht: dict[str, np.ndarray], observation: biro.Observation) -> None:
    sky = SkyModel(sources_of(eht), centre=(0.0, 0.0), noise=Noise(factor=1.0), **instrument_of(eht))
    chi2 = biro.Likelihood(observation, sky, backend="cpu").chi2(np.zeros(0))
    assert chi2[0] == pytest.approx(4148.884, abs=5e-4)  # as many digits as the README has


def free_sky(eht: dict[str, np.ndarray]) -> SkyModel:
    """Sources and leakages free, gains known: priors so wide that they do not count."""
    flux, offset = Uniform(-3, 3, "Jy"), Uniform(-60, 60, "uas")
    common = {"east": offset, "north": offset} | dict.fromkeys("IQUV", flux)
    gauss = GaussianSource(
        "g", emaj=Uniform(45, 80, "uas"), emin=Uniform(20, 44, "uas"), pa=Uniform(0, 90, "deg"), **common
    )
    term = Uniform(-0.5, 0.5)
    return SkyModel(
        [gauss, PointSource("p", **common)],
        centre=(0.0, 0.0),
        noise=Noise(factor=1.0),
        **(instrument_of(eht) | {"leakage": Leakage(d_r=term, d_l=term)}),
    )


def true_values(eht: dict[str, np.ndarray]) -> dict[str, float]:
    gauss, point = sources_of(eht)
    values = {
        f"{source.name}.{key}": getattr(source, key)
        for source in (gauss, point)
        for key in ("east", "north", *"IQUV", "emaj", "emin", "pa")
        if hasattr(source, key)
    }
    numbers = {
        name: (value[0] if isinstance(value, tuple) else value).value for name, value in values.items()
    }
    for name, right, left in zip(map(str, eht["stations"]), eht["d_r"], eht["d_l"], strict=True):
        for key, number in (("d_r", right), ("d_l", left)):
            numbers[f"leakage.{key}.real[{name}]"] = float(number.real)
            numbers[f"leakage.{key}.imag[{name}]"] = float(number.imag)
    return numbers


def test_the_exercise_has_its_known_answer(eht: dict[str, np.ndarray], observation: biro.Observation) -> None:
    """Gauss-Newton from the truth to the maximum that another program found, with its errors."""
    likelihood = biro.Likelihood(observation, free_sky(eht), backend="cpu")
    values = true_values(eht)
    theta = np.array([values[name] for name in likelihood.parameter_names])
    for _ in range(4):
        _, slope = likelihood.log_likelihood_and_gradient(theta)
        fisher = likelihood.fisher(theta)
        theta = theta + np.linalg.solve(fisher, slope)
    assert likelihood.chi2(theta)[0] == pytest.approx(4099.666, abs=5e-4)
    error = np.sqrt(np.diag(np.linalg.inv(fisher)))
    at = {name: (theta[i], error[i]) for i, name in enumerate(likelihood.parameter_names)}
    known = {
        "g.I": (1.60007, 0.00032),
        "g.Q": (0.08230, 0.00036),
        "g.U": (0.22582, 0.00037),
        "g.V": (0.04832, 0.00026),
        "g.emaj": (61.903, 0.095),
        "g.emin": (34.025, 0.028),
        "g.pa": (37.038, 0.098),
        "g.east": (3.937, 0.050),
        "g.north": (-3.047, 0.040),
        "p.I": (0.55016, 0.00018),
        "p.Q": (-0.10178, 0.00016),
        "p.U": (-0.13006, 0.00016),
        "p.V": (-0.03309, 0.00012),
        "p.east": (31.0047, 0.0028),
        "p.north": (-21.9992, 0.0031),
    }
    for name, (value, sigma) in known.items():
        # Half a unit of the last digit of the README; its errors have two digits.
        assert at[name][0] == pytest.approx(value, abs=0.02 * sigma + 0.6e-5), name
        assert at[name][1] == pytest.approx(sigma, rel=0.03), name
    pulls = [
        (theta_i - values[name]) / sigma for name, (theta_i, sigma) in at.items() if name[:7] == "leakage"
    ]
    assert len(pulls) == 32
    assert np.sqrt(np.mean(np.square(pulls))) == pytest.approx(1.06, abs=0.006)


@pytest.mark.parametrize("rotation", ["present", "corrected"])
@pytest.mark.parametrize("feeds", ["linear", "circular"])
def test_gradients_of_the_likelihood_are_differences(rotation: str, feeds: str) -> None:
    keys = ("d_x", "d_y") if feeds == "linear" else ("d_r", "d_l")
    sky = SkyModel(
        SKY,
        feeds=Feeds(rotation=rotation, offset=Normal(0, 5, "deg")),
        leakage=Leakage(**dict.fromkeys(keys, Normal(0, 0.1)), chan_blocks=2),
        noise=Noise(factor=1.0),
    )
    likelihood = biro.Likelihood(simulated(feeds, noise=0.1), sky, backend="cpu")
    rng = np.random.default_rng(3)
    theta = likelihood.prior_transform(rng.uniform(0.3, 0.7, likelihood.n_param))
    _, slope = likelihood.log_likelihood_and_gradient(theta)
    # Differences of fourth order: what is left is of step^4 and roundings over the step.
    step = 2e-3 * np.where([name.startswith("feeds") for name in likelihood.parameter_names], 30.0, 1.0)
    ways = np.array([1.0, -1.0, 2.0, -2.0])[:, None, None] * np.diag(step)
    value = np.array([likelihood.log_likelihood(theta + way) for way in ways])
    difference = (8 * (value[0] - value[1]) - (value[2] - value[3])) / (12 * step)
    assert np.abs(slope - difference).max() < 1e-7 * np.abs(slope).max()


def simulated(
    feeds: str, sky: SkyModel | None = None, n_chan: int = 2, **options: object
) -> biro.Observation:
    return simulate(
        "KAT-7",
        sky or SkyModel(SKY),
        phase_centre=(1.0, -0.6),
        times=Track("2026-03-01", 7200.0, 1200.0),
        channels=Channels(1.4e9, 1e7, n_chan),
        feeds=feeds,
        backend="cpu",
        **({"seed": 1} | options),
    )


@pytest.mark.parametrize("feeds", ["linear", "circular"])
def test_simulated_terms_are_an_explicit_product(feeds: str) -> None:
    """V = A X A^H row by row, X the visibilities without any of it."""
    keys = ("d_x", "d_y") if feeds == "linear" else ("d_r", "d_l")
    plain = simulated(feeds)
    name = plain.antenna_names[2]
    sky = SkyModel(
        SKY,
        feeds=Feeds(rotation="present"),
        leakage=Leakage(**{keys[0]: "0.05-0.02j"}, antenna={name: {keys[1]: 0.1}}),
    )
    found = simulated(feeds, sky, gains=GainScatter(0.2, 0.5, 2400.0)).partitions[0]
    gains = GainScatter(0.2, 0.5, 2400.0).draw(plain, 1).gain[:, :, 0]
    angle, part = plain.feed_angles[0].feed_angle(), plain.partitions[0]
    expected = np.empty_like(part.vis)
    for row, (t, p, q) in enumerate(zip(part.time_index, part.antenna1, part.antenna2, strict=True)):
        sides = []
        for a in (p, q):
            phi, leak = angle[t, a], np.array([[1, 0.05 - 0.02j], [0.1 * (a == 2), 1]])
            turn = (
                np.array([[np.cos(phi), np.sin(phi)], [-np.sin(phi), np.cos(phi)]])
                if feeds == "linear"
                else np.diag([np.exp(-1j * phi), np.exp(1j * phi)])
            )
            sides.append(np.diag(gains[t, a]) @ leak @ turn)
        for chan in range(part.n_chan):
            matrix = part.vis[row, chan].reshape(2, 2)
            expected[row, chan] = (sides[0] @ matrix @ sides[1].conj().T).ravel()
    assert np.ptp(angle) > 0.1
    # Two programs of double precision, phases of 1e3 turns.
    assert np.abs(found.vis - expected).max() < 1e-11


def test_an_image_beside_the_model_is_refused() -> None:
    observation = simulated("circular")
    image = biro.ImageModel(np.ones((1, 1, 32, 32)), 1e-5, (1.0, -0.6))
    sky = SkyModel(SKY, gain=Gain(amplitude=2.0))
    with pytest.raises(InputError, match=r"write the image into the model as \[\[image\]\]"):
        list(predict(observation, sky, image=image, backend="cpu"))


def test_equatorial_mounts_stand_along_the_pole_of_date(measurement_set: Callable[[str], Path]) -> None:
    wsrt = biro.read_ms(measurement_set("wsrt_3c343.1"))
    plain, corrected, present = (
        biro.Likelihood(wsrt, SkyModel(SKY, feeds=feeds, noise=Noise(factor=1.0)), backend="cpu").chi2(
            np.zeros(0)
        )
        for feeds in (None, Feeds(rotation="corrected"), Feeds(rotation="present"))
    )
    assert np.array_equal(plain, corrected)
    # In August 2000 the pole of date is 0.001 deg from the ICRS north here.
    assert present == pytest.approx(plain, rel=1e-5)
    (line,) = wsrt.instrument_lines(SkyModel(SKY, feeds=Feeds(rotation="present")))
    assert "biro applies the parallactic angle to the model, -0.001" in line
    assert "(all mounts are equatorial)" in line
    assert line.endswith("which changes nothing")


def test_data_that_are_corrected_have_no_rotation_applied(measurement_set: Callable[[str], Path]) -> None:
    """At the VLA feeds turn by 56 deg: to call them corrected changes nothing, to call them present does."""
    vla = biro.read_ms(measurement_set("vla_3c273_x"), uv_range="..2 klambda")
    plain, corrected, present = (
        next(predict(vla, SkyModel(SKY, feeds=feeds), backend="cpu"))
        for feeds in (None, Feeds(rotation="corrected"), Feeds(rotation="present"))
    )
    assert np.array_equal(plain, corrected)
    (part,) = vla.partitions
    angle = vla.feed_angles[0].feed_angle()
    both = angle[part.time_index, part.antenna1] + angle[part.time_index, part.antenna2]
    cross = [part.corr_type.index(name) for name in ("RL", "LR")]
    turn = np.exp(1j * both[:, None, None] * [-1.0, 1.0])
    # Double precision: a product of unit numbers.
    assert np.abs(present[..., cross] - plain[..., cross] * turn).max() < 1e-13
    assert np.ptp(both) > 1.0


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return python("-m", "biro", *words)


def test_the_commands_simulate_predict_and_fit(tmp_path: Path) -> None:
    """Gains that were drawn are read back: what is left of data without noise is the rounding of DATA."""
    model = SkyModel(SKY[:1], feeds=Feeds(rotation="present"), leakage=Leakage(d_r=0.1), centre=(1.0, -0.6))
    (tmp_path / "sky.toml").write_text(model.to_toml())
    done = run(
        *("simulate", tmp_path / "sim.ms", tmp_path / "sky.toml", "--telescope", "KAT-7"),
        *("--phase-centre", "1 rad -0.6 rad", "--start", "2026-03-01", "--duration", "1 h"),
        *("--integration", "10 min", "--freq", "1.4 GHz", "--chan-width", "10 MHz", "--feeds", "circular"),
        *("--gain-amplitude", "0.1", "--gain-phase", "40 deg", "--gain-interval", "20 min"),
        *("--seed", 3, "--backend", "cpu"),
    )
    assert done.returncode == 0, done.stderr
    assert "sim.gains.npz: the gains that were applied" in done.stderr
    assert re.search(
        r"feeds: biro applies the parallactic angle to the model, .* deg \(all mounts are alt-az\)",
        done.stderr,
    )
    with_gains = replace(model, gain=Gain(table=str(tmp_path / "sim.gains.npz")))
    (tmp_path / "gains.toml").write_text(with_gains.to_toml())
    done = run(
        "predict",
        tmp_path / "sim.ms",
        tmp_path / "gains.toml",
        "--out",
        tmp_path / "m.npz",
        "--backend",
        "cpu",
    )
    assert done.returncode == 0, done.stderr
    data = biro.read_ms(tmp_path / "sim.ms")
    with np.load(tmp_path / "m.npz") as file:
        # DATA is in single precision.
        assert np.abs(file["vis_0"] - data.partitions[0].vis).max() < 1e-6
    free = replace(with_gains, leakage=Leakage(d_r=Uniform(0, 0.2)), noise=Noise(factor=1.0))
    (tmp_path / "free.toml").write_text(free.to_toml())
    done = run(
        *("fit", tmp_path / "sim.ms", tmp_path / "free.toml", "-o", tmp_path / "run", "--sampler", "none"),
        *("--seed", 1, "--backend", "cpu", "--no-pictures", "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"feeds: biro applies the parallactic angle to the model, .* deg \(all mounts are alt-az\)",
        done.stderr,
    )
    assert "sim.gains.npz: " in done.stderr
    done = run("fit", tmp_path / "sim.ms", tmp_path / "free.toml", "-o", tmp_path / "other", "--stokes", "I")
    assert done.returncode == 2
    assert "has Stokes parameters (I); read RR, RL, LR, LL" in done.stderr.splitlines()[-1]
