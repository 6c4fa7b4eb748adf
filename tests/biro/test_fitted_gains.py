"""Gains fitted beside the sky: eht-imaging's exercise, undetermined combinations, gradients, recovery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import biro
from biro.errors import InputError
from biro.likelihood.degeneracies import null_directions
from biro.models import Gain, LogNormal, LogUniform, Noise, Normal, PerSegment, PointSource, SkyModel, Uniform
from biro.plots import gains
from biro.plots.labels import default_names
from tests.biro.test_antenna_terms import eht, free_sky, observation, true_values
from tests.rime_kernels.conftest import cuda_backend

__all__ = ["cuda_backend", "eht", "observation"]  # fixtures
TURN = Uniform(-180, 180, "deg")
CIRCULAR = ("RR", "RL", "LR", "LL")


def exercise(eht: dict[str, np.ndarray], reference: str) -> SkyModel:
    """Sources, leakages and gains free: one of each scan and station, and a ratio of each station."""
    gain = Gain(
        amplitude=PerSegment(LogUniform(0.05, 20), per="scan"),
        phase=PerSegment(TURN, per="scan"),
        feeds="ratio",
        ratio_amplitude=LogUniform(0.05, 20),
        ratio_phase=TURN,
        reference=reference,
    )
    return replace(free_sky(eht), gain=gain)


def true_theta(eht: dict[str, np.ndarray], likelihood: biro.Likelihood) -> np.ndarray:
    """The truth, with the phases of each scan relative to those of ALMA."""
    names, known = list(map(str, eht["stations"])), true_values(eht)
    first = np.searchsorted(eht["scan_of_time"], np.arange(10))
    relative = (
        eht["gain"][first, :, 1] / np.exp(1j * np.angle(eht["gain"][first, names.index("ALMA"), 1]))[:, None]
    )
    ratio = eht["gain"][0, :, 0] / eht["gain"][0, :, 1]
    theta = np.empty(likelihood.n_param)
    for i, name in enumerate(likelihood.parameter_names):
        if name in known:
            theta[i] = known[name]
            continue
        index = name.split("[")
        station = names.index(index[1].rstrip("]"))
        if name.startswith("leakage"):
            value = eht[name.split(".")[1]][station]
            theta[i] = value.real if ".real" in name else value.imag
            continue
        scan = index[-1].removeprefix("scan ").rstrip("]")
        gain = ratio[station] if "ratio" in name else relative[int(scan) - 1, station]
        theta[i] = abs(gain) if "amplitude" in name else np.degrees(np.angle(gain))
    return theta


def test_the_exercise_with_gains_free(eht: dict[str, np.ndarray], observation: biro.Observation) -> None:
    """The README's maximum, by Gauss and Newton from the truth."""
    likelihood = biro.Likelihood(observation, exercise(eht, "auto"), backend="cpu")
    assert likelihood.model.gain_lines == ["gains: gain.phase is 0 for the reference antenna ALMA"]
    theta = true_theta(eht, likelihood)
    assert likelihood.chi2(theta)[0] == pytest.approx(4148.884, abs=5e-4)
    for _ in range(6):
        information = likelihood.fisher(theta)
        by = 1.0 / np.sqrt(np.diag(information))
        inverse = np.linalg.pinv(information * np.outer(by, by), rcond=1e-11, hermitian=True)
        theta = theta + by * (inverse @ (by * likelihood.log_likelihood_and_gradient(theta)[1]))
    # As many digits as the README has, here and below.
    assert likelihood.chi2(theta)[0] == pytest.approx(3978.194, abs=1e-3)
    best = dict(zip(likelihood.parameter_names, theta, strict=True))
    assert best["p.east"] - best["g.east"] == pytest.approx(27.14, abs=0.006)
    assert best["p.north"] - best["g.north"] == pytest.approx(-18.90, abs=0.006)
    assert [best[f"g.{key}"] for key in ("emaj", "emin", "pa")] == pytest.approx(
        [61.90, 34.03, 37.01], abs=0.006
    )
    for name, wanted in (("g", 0.1501), ("p", 0.3002)):
        # The steps leave the ratio of feeds, which mixes I and V, near the truth: to some 1e-3.
        found = np.hypot(best[f"{name}.Q"], best[f"{name}.U"]) / best[f"{name}.I"]
        assert found == pytest.approx(wanted, rel=5e-3)
    assert best["p.I"] / best["g.I"] == pytest.approx(0.3433, abs=1e-3)


def test_the_exercise_names_what_is_undetermined(
    eht: dict[str, np.ndarray], observation: biro.Observation
) -> None:
    """Ten phases of scans, the flux scale, the phase and the amplitude between the feeds: 13, or 3."""
    line = biro.Likelihood(observation, exercise(eht, "none"), backend="cpu").undetermined
    assert "a common phase of all antennas: gain.phase[*] of each of scan 1, scan 2, scan 3" in line
    with_reference = biro.Likelihood(observation, exercise(eht, "auto"), backend="cpu").undetermined
    assert "a common phase" not in with_reference
    for kind, members in (
        ("the R-L (or X-Y) phase offset, ", "gain.ratio_phase[*] with g.Q, g.U, p.Q, p.U"),
        ("the R/L (or X/Y) amplitude ratio, ", "gain.ratio_amplitude[*]"),
        ("the overall flux scale (", "gain.amplitude[*] with g.I, g.Q, g.U, g.V, p.I, p.Q, p.U, p.V"),
    ):
        assert kind in with_reference
        assert members in with_reference
    assert "\n" not in line + with_reference


def test_directions_are_taken_apart() -> None:
    """Two of four parameters that only count as sums: (1, -1, 0, 0) and (0, 0, 1, -1), not mixtures."""
    change = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 2.0, 2.0]])
    found = null_directions(change.T @ change, np.ones(4))
    found = found[np.argsort(-np.abs(found[:, 0]))]
    found /= found[[0, 1], [0, 2]][:, None]
    assert np.allclose(found, [[1, -1, 0, 0], [0, 0, 1, -1]], atol=1e-12)


TIMES = {"prior": "log-uniform", "low": 0.5, "high": 50, "unit": "min"}
TWO_SCANS = (0, 10, 20, 400, 410, 420)


def small(
    n_chan: int = 2, n_time: int = 6, noise: float = 0.02, seed: int = 1, times: Sequence[float] = TWO_SCANS
) -> biro.Observation:
    """Five antennas, six times in two scans: a point off centre seen through gains that are known."""
    rng = np.random.default_rng(seed)
    antenna = rng.uniform(-2000, 2000, (5, 3)) * [1, 1, 0.1]
    p, q = np.triu_indices(5, 1)
    time = 5e9 + np.repeat(np.array(times[:n_time], float), p.size)
    uvw = np.tile(antenna[p] - antenna[q], (n_time, 1)) * (1 + 1e-4 * (time - time[0]))[:, None]
    vis = np.zeros((time.size, n_chan, 4), complex)
    freq = 1.4e9 + 2e7 * np.arange(n_chan)
    p, q = np.tile(p, n_time), np.tile(q, n_time)
    return biro.Observation.from_arrays(
        vis, uvw, p, q, time, freq, CIRCULAR, weight=noise**-2, antenna_names=list("ABCDE"), interval=10.0
    )


def simulated(likelihood: biro.Likelihood, theta: np.ndarray, noise: float, seed: int) -> biro.Observation:
    """The data of a likelihood with the visibilities of theta, and noise."""
    rng, (part,) = np.random.default_rng(seed), likelihood.observation.partitions
    (vis,) = likelihood.predict(theta)
    vis = vis + noise * (rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape))
    return replace(likelihood.observation, partitions=(replace(part, vis=vis),))


def drifting(correlated: object = None) -> SkyModel:
    flux = Uniform("0.5 Jy", "2 Jy")
    return SkyModel(
        [
            PointSource("a", east="0 arcsec", north="0 arcsec", I="1 Jy"),
            PointSource("b", east="4 arcsec", north=Uniform("-6 arcsec", "-4 arcsec"), I=flux),
        ],
        noise=Noise(factor=1.0),
        gain=Gain(
            amplitude=PerSegment(LogNormal(0.1), per="scan"),
            phase=PerSegment(TURN, per="integration", correlated=correlated),
            delay={"prior": "normal", "sd": "1 ns"},
            rate={"prior": "normal", "sd": "1 mHz"},
        ),
    )


FITTED_TIMES = Gain(
    amplitude=PerSegment(LogNormal(0.1), per="integration", correlated=TIMES),
    phase=PerSegment(Normal(0, 30, "deg"), per="integration", correlated=TIMES),
)


@pytest.mark.parametrize(
    "sky",
    [
        pytest.param(drifting(), id="independent"),
        pytest.param(drifting("1 min"), id="correlated"),
        pytest.param(drifting(TIMES), id="walks over a fitted time"),
        pytest.param(replace(drifting(), gain=FITTED_TIMES), id="fitted times"),
    ],
)
def test_gradients_are_those_of_differences(sky: SkyModel) -> None:
    assert_gradients_of_differences(sky)


def assert_gradients_of_differences(sky: SkyModel) -> None:
    """Derivatives of the log-posterior by all parameters, of data of a draw of the prior, about it."""
    likelihood = biro.Likelihood(small(), sky, backend="cpu")
    rng = np.random.default_rng(3)
    truth = likelihood.prior_transform(rng.uniform(0.3, 0.7, likelihood.n_param))
    likelihood = biro.Likelihood(simulated(likelihood, truth, 0.02, 4), sky, backend="cpu")
    sigma = 1.0 / np.sqrt(np.diag(likelihood.fisher(truth)))
    theta = truth + sigma * rng.normal(size=truth.size)
    _, gradient = likelihood.log_posterior_and_gradient(theta)
    step = 1e-3 * sigma * np.eye(truth.size)
    ahead, far = (
        likelihood.log_posterior(theta + k * step) - likelihood.log_posterior(theta - k * step)
        for k in (1, 2)
    )
    found = (8 * ahead - far) / (12 * np.diag(step))
    # Differences of fourth order in steps of 1e-3 sigma; roundings of ln L make 1e-10 a sigma.
    assert np.abs((found - gradient) * sigma).max() < 1e-7


def plain(correlated: str | None = None) -> SkyModel:
    """Without delay and rate: a rate is the slope of the phases of integrations."""
    gain = Gain(
        amplitude=PerSegment(LogNormal(0.1), per="scan"),
        phase=PerSegment(TURN, per="integration", correlated=correlated),
    )
    return replace(drifting(), gain=gain)


@pytest.fixture(scope="module")
def fitted() -> tuple[biro.Posterior, biro.Likelihood, np.ndarray]:
    """A posterior of seeded data by NUTS, and the truth."""
    likelihood = biro.Likelihood(small(), plain(), backend="cpu")
    truth = likelihood.prior_transform(np.random.default_rng(5).random(likelihood.n_param))
    likelihood = biro.Likelihood(simulated(likelihood, truth, 0.02, 6), plain(), backend="cpu")
    start = dict(zip(likelihood.parameter_names, truth, strict=True))
    options = {"n_tune": 150, "n_draw": 150, "n_chain": 2}
    posterior = biro.sample(likelihood, "nuts", seed=1, progress=False, start=start, **options)
    return posterior, likelihood, truth


def test_the_truth_lies_within_the_intervals(
    fitted: tuple[biro.Posterior, biro.Likelihood, np.ndarray],
) -> None:
    posterior, likelihood, truth = fitted
    assert posterior.diagnostics["n_divergent"] == 0
    assert posterior.diagnostics["r_hat"] < 1.1
    away = posterior.samples - truth
    period = np.array([parameter.period or np.inf for parameter in likelihood.parameters])
    turns = np.isfinite(period)
    away[:, turns] -= np.rint(away[:, turns] / period[turns]) * period[turns]
    pulls = away.mean(axis=0) / away.std(axis=0)
    # 36 pulls, which share noise: some 20 independent ones, whose rms is good to 16 %; two and a half of it.
    assert 0.6 < np.sqrt(np.mean(pulls**2)) < 1.5
    assert np.abs(pulls).max() < 3.5


def test_many_gains_are_a_row_for_each_antenna(
    fitted: tuple[biro.Posterior, biro.Likelihood, np.ndarray],
) -> None:
    posterior, _, _ = fitted
    summary = posterior.summary()
    names = [row[0] for row in summary.cells()[1:]]
    assert names[:2] == ["b.north", "b.I"]
    assert names[2] == "gain.amplitude[A] (2 segments)"
    assert sum(name.startswith("gain.phase[") and name.endswith("] (6 segments)") for name in names) >= 3
    assert len(summary.rows) == posterior.n_param
    assert default_names(posterior) == ("b.north", "b.I")


def test_a_picture_has_a_pair_of_panels_for_each_antenna(
    fitted: tuple[biro.Posterior, biro.Likelihood, np.ndarray],
) -> None:
    posterior, likelihood, truth = fitted
    figure = gains(posterior, likelihood)
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_ylabel() for ax in shown[::2]] == list("ABCDE")
    # What is drawn is what the model multiplies: gains of the truth by name of parameter.
    found = likelihood.model.gains(truth[None], 0)[0]
    value = dict(zip(likelihood.parameter_names, truth, strict=True))
    for time, antenna, name in ((0, 1, "B"), (4, 3, "D")):
        phase = np.radians(value.get(f"gain.phase[{name}][time {time + 1}]", 0.0))
        wanted = value[f"gain.amplitude[{name}][scan {1 + time // 3}]"] * np.exp(1j * phase)
        assert found[time, antenna] == pytest.approx([wanted, wanted], rel=1e-13)  # roundings


def two_points(correlated: object) -> SkyModel:
    """A flux, and phases alone."""
    phase = PerSegment(Normal(0, 30, "deg"), per="integration", correlated=correlated)
    return replace(drifting(), gain=Gain(phase=phase))


def seeded(truth_minutes: float, n_time: int) -> tuple[biro.Likelihood, biro.Observation]:
    """A likelihood of data with phases that drift over a known time, and the data."""
    data = small(n_chan=1, n_time=n_time, noise=0.3, times=60.0 * np.arange(n_time))
    likelihood = biro.Likelihood(data, two_points(TIMES), backend="cpu")
    theta = likelihood.prior_transform(np.random.default_rng(7).random(likelihood.n_param))
    theta[likelihood.parameter_names.index("gain.phase.correlated")] = truth_minutes
    data = simulated(likelihood, theta, 0.3, 8)
    return biro.Likelihood(data, two_points(TIMES), backend="cpu"), data


@pytest.mark.thorough
def test_nuts_finds_the_posterior_of_a_correlation_time() -> None:
    """That of likelihoods with fixed times, integrated over the phases at the sky's median; and the truth."""
    likelihood, data = seeded(truth_minutes=5.0, n_time=10)
    options = {"n_tune": 200, "n_draw": 300, "n_chain": 2}
    posterior = biro.sample(likelihood, "nuts", seed=1, progress=False, **options)
    column = dict(zip(posterior.names, posterior.samples.T, strict=True))
    found = np.log(column["gain.phase.correlated"])
    theta = np.array([np.median(column[name]) for name in ("b.north", "b.I")])
    grid = np.log(np.geomspace(1.0, 30.0, 16))  # five errors or more on either side
    value = [
        biro.Likelihood(
            data, two_points(f"{minutes} min"), gains="marginalise", backend="cpu"
        ).log_likelihood(theta)
        for minutes in np.exp(grid)
    ]
    weight = np.exp(np.array(value) - np.max(value))
    mean = np.average(grid, weights=weight)
    sd = np.sqrt(np.average((grid - mean) ** 2, weights=weight))
    # Some 180 effective draws: standard errors of 0.075 and 0.053 sd; four of these.
    assert found.mean() == pytest.approx(mean, abs=0.3 * sd)
    assert found.std() == pytest.approx(sd, rel=0.2)
    assert abs(mean - np.log(5.0)) < 3.0 * sd


def test_a_fitted_correlation_time_is_not_called_undetermined() -> None:
    """Steps make up for any change of it, but their prior does not."""
    assert biro.Likelihood(small(n_time=3), two_points(TIMES), backend="cpu").undetermined == ""


def test_the_maximum_says_that_a_correlation_time_is_too_short_there() -> None:
    likelihood = biro.Likelihood(small(n_chan=1, n_time=2), two_points(TIMES), backend="cpu")
    posterior = biro.sample(likelihood, "none", seed=1, progress=False)
    assert posterior.remarks[0].startswith("gain.phase.correlated: biased at the maximum (too short)")


def test_a_fitted_correlation_time_is_refused_where_gains_are_solved_for() -> None:
    wanted = r"found gain\.phase\.correlated with a prior\. .*\"marginalise\" or \"sample\""
    with pytest.raises(InputError, match=wanted) as caught:
        biro.Likelihood(small(), two_points(TIMES), gains="solve", backend="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.cuda
def test_a_gpu_has_the_same_values_and_gradients(cuda_backend: str) -> None:
    """Two times and one channel, delay and rate included: kernels that leakages use, too."""
    cpu, gpu = (
        biro.Likelihood(small(n_chan=1, n_time=2), drifting("1 min"), backend=backend)
        for backend in ("cpu", cuda_backend)
    )
    theta = cpu.prior_transform(np.random.default_rng(3).uniform(0.3, 0.7, cpu.n_param))
    wanted, found = (one.log_posterior_and_gradient(theta) for one in (cpu, gpu))
    assert found[0] == pytest.approx(wanted[0], rel=1e-10)  # roundings of sums in another order
    assert np.abs(found[1] - wanted[1]).max() < 1e-9 * np.abs(wanted[1]).max()
