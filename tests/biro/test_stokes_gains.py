"""Gains that both feeds share, on data in Stokes parameters: the same as on the correlations of the feeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import biro
from biro.errors import BiroError, InputError
from biro.models import Gain, GainSolutions, LogNormal, Noise, PerSegment, PointSource, SkyModel, Uniform
from biro.observation.stokes import form_stokes
from biro.simulation.prediction import predict

TURN = Uniform("-180 deg", "180 deg")
FREE = Gain(amplitude=LogNormal(0.1), phase=PerSegment(TURN, per="integration"))
NAMES = ("A", "B", "C", "D")
FEEDS = {"linear": ("XX", "XY", "YX", "YY"), "circular": ("RR", "RL", "LR", "LL")}


def sky(gain: Gain | list[Gain] | None = FREE, **changed: object) -> SkyModel:
    near = PointSource(
        "a", east="0 arcmin", north="0 arcmin", I=Uniform("1 Jy", "3 Jy"), Q="0.3 Jy", V="-0.2 Jy"
    )
    far = PointSource("b", east="3 arcmin", north="-6 arcmin", I="1 Jy", U="0.4 Jy")
    return SkyModel([near, far], noise=Noise(factor=1.0), gain=gain, **changed)


def measured(basis: str = "circular") -> biro.Observation:
    """Four antennas, three times, all four correlations with equal weights; of gains that are not 1."""
    rng = np.random.default_rng(7)
    first, second = np.triu_indices(4, 1)
    where = rng.normal(size=(3, 4, 3)) * [300.0, 300.0, 30.0]
    uvw = (where[:, second] - where[:, first]).reshape(-1, 3)
    times = np.repeat(5e9 + 10.0 * np.arange(3), 6)
    antennas = np.tile(first, 3), np.tile(second, 3)
    empty = biro.Observation.from_arrays(
        np.zeros((18, 2, 4), complex), uvw, *antennas, times, [1.4e9, 1.41e9], FEEDS[basis],
        weight=100.0, antenna_names=NAMES, interval=10.0,
    )  # fmt: skip
    (model,) = predict(empty, sky(None), values={"a.I": 2.0}, backend="cpu")
    gain = np.exp(0.1 * rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4)))
    time = np.repeat(np.arange(3), 6)
    by = gain[time, antennas[0]] * gain[time, antennas[1]].conj()
    noise = 0.1 * (rng.normal(size=model.shape) + 1j * rng.normal(size=model.shape))
    return replace(empty, partitions=(replace(empty.partitions[0], vis=by[:, None, None] * model + noise),))


def in_stokes(data: biro.Observation, stokes: str = "IQUV") -> biro.Observation:
    parts, _ = form_stokes(data.partitions, stokes)
    return replace(data, partitions=tuple(parts))


@pytest.mark.parametrize("basis", FEEDS)
@pytest.mark.parametrize("gains", ["sample", "marginalise", "solve"])
def test_all_stokes_parameters_say_what_all_correlations_say(basis: str, gains: str) -> None:
    """Of equal weights they are a rotation of each other: chi2, slopes and information are the same."""
    data = measured(basis)
    made = [biro.Likelihood(one, sky(), gains=gains, backend="cpu") for one in (data, in_stokes(data))]
    feeds, stokes = made
    assert feeds.parameter_names == stokes.parameter_names
    theta = feeds.prior_transform(np.random.default_rng(2).uniform(0.4, 0.6, (2, feeds.n_param)))
    # Roundings, and where a search for the best gains ends.
    assert stokes.chi2(theta) == pytest.approx(feeds.chi2(theta), rel=1e-9)
    (a, by_a), (b, by_b) = (each.log_likelihood_and_gradient(theta) for each in made)
    assert b - b[0] == pytest.approx(a - a[0], rel=1e-9, abs=1e-7)
    assert by_b == pytest.approx(by_a, rel=1e-7, abs=1e-7 * np.abs(by_a).max())
    one, other = feeds.fisher(theta[0]), stokes.fisher(theta[0])
    assert other == pytest.approx(one, rel=1e-7, abs=1e-7 * np.abs(one).max())


def test_one_stokes_parameter_is_one_correlation_without_the_others() -> None:
    """Stokes I of a sky without V is RR, of any gains: what was done by hand for files of Stokes I."""
    bare = sky()
    bare = replace(bare, sources=[replace(one, Q=None, U=None, V=None) for one in bare.sources])
    stokes = in_stokes(measured(), "I")
    feeds = replace(stokes, partitions=(replace(stokes.partitions[0], corr_type=("RR",)),))
    made = [biro.Likelihood(one, bare, gains="marginalise", backend="cpu") for one in (feeds, stokes)]
    theta = np.array([[1.5], [2.5]])
    assert made[1].log_likelihood(theta) == pytest.approx(made[0].log_likelihood(theta), rel=1e-12)


def test_solved_gains_are_those_of_all_correlations(tmp_path) -> None:
    """The same sums over equal weights; a table of them makes the same predictions, and takes them out."""
    data = measured()
    stokes = in_stokes(data)
    known = sky(None)
    found = [
        biro.solve_gains(each, known, feeds="common", values={"a.I": 2.0}, backend="cpu")
        for each in (data, stokes)
    ]
    (one,), (other,) = (each.windows for each in found)
    assert other.gain == pytest.approx(one.gain, rel=1e-6)  # where the search ends
    assert other.phase_error == pytest.approx(one.phase_error, rel=1e-6)
    found[1].save(tmp_path / "gains.npz")
    table = Gain(table=biro.read_gains(tmp_path / "gains.npz"))
    (seen,) = predict(stokes, sky(table), values={"a.I": 2.0}, backend="cpu")
    (bare,) = predict(stokes, known, values={"a.I": 2.0}, backend="cpu")
    (clean,) = found[1].corrected()
    (part,) = stokes.partitions
    # D / g_p g_q^* is to V as D is to g_p g_q^* V.
    assert clean * seen == pytest.approx(part.vis * bare, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "gain",
    [
        replace(FREE, feeds="separate"),
        Gain(amplitude={"r": 1.1, "l": 0.9}),
        Gain(feeds="ratio", ratio_amplitude=LogNormal(0.1)),
    ],
)
def test_gains_that_differ_between_feeds_are_refused(gain: Gain) -> None:
    with pytest.raises(
        BiroError, match=r"has Stokes parameters \(I\).* the same for both feeds .*without --stokes"
    ):
        biro.Likelihood(in_stokes(measured(), "I"), sky(gain), backend="cpu")


def test_a_table_that_differs_between_feeds_is_refused() -> None:
    data = in_stokes(measured(), "I")
    values = np.ones((1, 4, 1, 2), complex) * [1.0, 1.1]
    table = GainSolutions("", np.array([5e9]), np.array([1.4e9]), NAMES, values, np.ones(values.shape, bool))
    with pytest.raises(BiroError, match="its tables differ between the feeds"):
        biro.Likelihood(data, sky(Gain(table=table)), backend="cpu")
    with pytest.raises(InputError, match="say feeds common"):
        biro.solve_gains(data, sky(None), values={"a.I": 2.0}, backend="cpu")
