"""Gains with priors: names, segments, references, values, derivatives, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from biro.models import (
    Feeds,
    Gain,
    Leakage,
    LogNormal,
    ModelError,
    Noise,
    Normal,
    PartitionView,
    PerSegment,
    PointSource,
    SkyModel,
    Uniform,
)
from biro.models.bound.model import BoundModel
from biro.models.components.antenna_terms.gain import is_gain
from biro.models.files.toml import from_toml
from tests.models.test_antenna_terms import CIRCULAR, LINEAR, check_push_and_pull, spread, terms_of, view_of

POINT = PointSource("p", east="0 rad", north="0 rad", I="1 Jy")
TURN = Uniform("-180 deg", "180 deg")
WITHOUT_CROSS = ("RR", "LL")


def bound_to(
    *gains: Gain,
    views: list[PartitionView] | None = None,
    corr_type: tuple[str, ...] = CIRCULAR,
    **terms: object,
) -> BoundModel:
    """A point and gains on three antennas, or on these partitions."""
    angle = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.2, 0.1, 0.7], [0.3, 0.2, 0.9]])
    sky = SkyModel([POINT], noise=Noise(factor=1.0), gain=list(gains), **terms)
    return sky.bind(views or [view_of(angle, corr_type)])


def weights(table: list[list[float]]) -> Callable[[], np.ndarray]:
    return lambda: np.array(table, dtype=float)


def value_of(bound: BoundModel, **numbers: float) -> np.ndarray:
    """Gains (n_time, n_antenna, n_chan, 2) where parameters that end in these words have these values."""
    theta = bound.prior_transform(np.full((1, bound.n_param), 0.5))
    for i, name in enumerate(bound.parameter_names):
        for word, number in numbers.items():
            if name.startswith(word):
                theta[0, i] = number
    return np.einsum("tafii->tafi", spread(terms_of(bound, theta))[0])


def test_names_say_antenna_segment_window_and_block() -> None:
    amplitude, phase = LogNormal(0.1), PerSegment(TURN, per="20 s")
    bound = bound_to(Gain(amplitude=amplitude, phase=phase))
    # 0, 10, 20, 30 s are two segments; A is the reference.
    assert bound.parameter_names == (
        *(f"gain.amplitude[{name}]" for name in "ABC"),
        *(f"gain.phase[{name}][segment {k}]" for name in "BC" for k in (1, 2)),
    )
    assert [parameter.period for parameter in bound.parameters] == [None] * 3 + [360.0] * 4
    views = [view_of(np.zeros((2, 3)), CIRCULAR, label=f"f/{spw}", spw=spw) for spw in ("spw0", "spw1")]
    amplitude = PerSegment(LogNormal(0.1), per="integration", chan_blocks=2)
    names = bound_to(Gain(amplitude=amplitude, antennas=["B"]), views=views).parameter_names
    assert names[:2] == ("gain.amplitude[B][time 1][spw0][0]", "gain.amplitude[B][time 1][spw0][1]")
    assert names[-1] == "gain.amplitude[B][time 2][spw1][1]"
    shared = replace(amplitude, per=["integration", "all"])
    assert len(bound_to(Gain(amplitude=shared, antennas=["B"]), views=views).parameter_names) == 4
    two = bound_to(Gain(phase=TURN), Gain(phase=PerSegment(TURN, per="integration")), views=views[:1])
    assert two.parameter_names[0] == "gain.phase[B]"
    assert two.parameter_names[-1] == "gain2.phase[C][time 2]"
    apart = bound_to(Gain(amplitude=LogNormal(0.1), feeds="separate"), corr_type=LINEAR)
    assert apart.parameter_names[:2] == ("gain.amplitude.x[A]", "gain.amplitude.y[A]")


def test_scans_end_at_pauses_and_where_the_field_changes() -> None:
    scan = Gain(amplitude=PerSegment(LogNormal(0.1), per="scan"), antennas=["A"])
    pause = view_of(np.zeros((4, 3)), CIRCULAR, time=np.array([0.0, 10.0, 90.0, 100.0]), interval=10.0)
    assert bound_to(scan, views=[pause]).parameter_names == tuple(
        f"gain.amplitude[A][scan {k}]" for k in (1, 2)
    )
    # 80 s are fewer than three integrations of 30 s.
    assert bound_to(scan, views=[replace(pause, interval=30.0)]).parameter_names == (
        "gain.amplitude[A][scan 1]",
    )
    other = replace(pause, label="g/spw0", field="g", time=np.array([20.0, 30.0, 40.0, 50.0]))
    bound = bound_to(scan, views=[pause, other])
    assert len(bound.parameter_names) == 3
    gain = [
        spread(terms_of(bound, np.array([1.0, 2.0, 3.0]), i))[0, :, 0, 0, 0, 0].real.tolist() for i in (0, 1)
    ]
    assert gain == [[1.0, 1.0, 3.0, 3.0], [2.0] * 4]


def test_antennas_without_weights_in_a_segment_have_no_parameters_there() -> None:
    view = view_of(np.zeros((2, 3)), CIRCULAR, weights=weights([[1, 2, 3], [3, 2, 0]]))
    gain = Gain(
        amplitude=PerSegment(LogNormal(0.1), per="integration"), phase=PerSegment(TURN, per="integration")
    )
    bound = bound_to(gain, views=[view])
    assert "gain.amplitude[C][time 2]" not in bound.parameter_names
    # The most sensitive antenna is C first and then A.
    phases = [name for name in bound.parameter_names if "phase" in name]
    assert phases == ["gain.phase[A][time 1]", "gain.phase[B][time 1]", "gain.phase[B][time 2]"]
    assert bound.gain_lines == [
        "gains: gain.phase is 0 for the reference antenna A in 1 integrations, C in 1 integrations"
    ]
    named = bound_to(replace(gain, reference="C"), views=[view])
    assert [name for name in named.parameter_names if "phase" in name] == phases
    assert (
        len(
            [
                n
                for n in bound_to(replace(gain, reference="none"), views=[view]).parameter_names
                if "phase" in n
            ]
        )
        == 5
    )
    known = bound_to(replace(gain, antenna={"B": {"phase": "10 deg"}}), views=[view])
    assert [n for n in known.parameter_names if "phase" in n] == [
        "gain.phase[A][time 1]", "gain.phase[A][time 2]", "gain.phase[C][time 1]"
    ]  # fmt: skip
    # With correlated phases a reference that changed would break the process.
    drift = PerSegment(TURN, per="integration", correlated="1 min")
    chained = bound_to(replace(gain, phase=drift), views=[view])
    assert [n for n in chained.parameter_names if "phase" in n] == [
        "gain.phase[B][time 1]", "gain.phase.step[B][time 2]", "gain.phase[C][time 1]"
    ]  # fmt: skip
    # Where it has no data, nothing else may take its place: that is said.
    lacking = bound_to(replace(gain, phase=drift, reference="C"), views=[view])
    assert lacking.gain_lines == [
        "gains: gain.phase is 0 for the reference antenna C",
        "gains: gain.phase: the reference antenna has no data in 1 integrations, where only priors determine "
        "what all antennas have in common",
    ]


def test_feeds_are_common_separate_or_a_ratio() -> None:
    common = bound_to(Gain(amplitude=LogNormal(0.1), phase=TURN))
    found = value_of(common, **{"gain.amplitude": 2.0, "gain.phase": 90.0})
    assert np.allclose(found[0, :, 0], np.array([[2, 2], [2j, 2j], [2j, 2j]]), atol=1e-15)
    ratio = Gain(
        amplitude=LogNormal(0.1), phase=TURN, feeds="ratio", ratio_amplitude=LogNormal(0.1), ratio_phase=TURN
    )
    bound = bound_to(ratio)
    assert bound.parameter_names[-3:] == tuple(f"gain.ratio_phase[{name}]" for name in "ABC")
    numbers = {
        "gain.amplitude": 2.0,
        "gain.phase": 90.0,
        "gain.ratio_amplitude": 3.0,
        "gain.ratio_phase": 180.0,
    }
    # g_0 = ratio g_1
    assert np.allclose(value_of(bound, **numbers)[0, 1, 0], [-6j, 2j], atol=1e-14)
    known = bound_to(replace(ratio, antenna={"B": {"ratio_phase": "90 deg"}}))
    assert np.allclose(value_of(known, **numbers)[0, 1, 0], [6j * 1j, 2j], atol=1e-14)
    apart = Gain(phase=TURN, feeds="separate")
    # Cross hands compare the feeds of the reference: that of its second feed is free.
    assert bound_to(apart).parameter_names[0] == "gain.phase.l[A]"
    assert bound_to(apart, corr_type=WITHOUT_CROSS).parameter_names[0] == "gain.phase.r[B]"


def test_delays_and_rates_turn_with_frequency_and_time() -> None:
    gain = Gain(delay=Normal("0 s", "1 ns"), rate=Normal(0, 1, "mHz"))
    bound = bound_to(gain)
    found = value_of(bound, **{"gain.delay": 5e-9, "gain.rate": 2.0})
    freq, time = 1.4e9 + 1e6 * np.arange(5), 10.0 * np.arange(4)
    turns = 5e-9 * (freq - freq.mean()) + 2e-3 * (time[:, None] - time.mean())
    # Phases of 0.2 turns are good to roundings of frequencies of 1e9 Hz.
    assert np.abs(found[:, 1, :, 0] - np.exp(2j * np.pi * turns)).max() < 1e-12
    assert (found[:, 0] == 1.0).all()


@pytest.mark.parametrize("kind", ["amplitude", "phase", "uniform"])
def test_correlated_segments_have_the_prior_and_its_correlation(kind: str) -> None:
    """Over 20000 draws of the prior, for steps of 10 s: e^(-10/40) from one segment to the next."""
    given = {
        "amplitude": {"amplitude": PerSegment(LogNormal(0.2, 1.5), per="integration", correlated="40 s")},
        "phase": {"phase": PerSegment(Normal("20 deg", "10 deg"), per="integration", correlated="40 s")},
        "uniform": {"phase": PerSegment(TURN, per="integration", correlated="40 s")},
    }[kind]
    bound = bound_to(Gain(**given, antennas=["C"], reference="none"))
    theta = bound.prior_transform(np.random.default_rng(1).random((20000, bound.n_param)))
    gain = spread(terms_of(bound, theta))[:, :, 2, 0, 0, 0]
    kept = np.exp(-0.25)
    # Standard errors of 20000 draws: 0.7 % of a correlation, 0.5 % of a standard deviation; four of these.
    if kind == "uniform":
        for lag in (1, 2):
            assert np.mean(gain[:, lag:] * gain[:, :-lag].conj()) == pytest.approx(kept**lag, abs=0.02)
        assert abs(np.mean(gain)) < 0.03
        return
    x = np.log(np.abs(gain) / 1.5) if kind == "amplitude" else np.angle(gain) - np.radians(20)
    assert np.std(x, axis=0) == pytest.approx(0.2 if kind == "amplitude" else np.radians(10), rel=0.03)
    assert np.abs(np.mean(x, axis=0)).max() < 0.006
    assert np.corrcoef(x.T)[0] == pytest.approx(kept ** np.arange(4), abs=0.03)


TIMES = {"prior": "log-uniform", "low": 1, "high": 60, "unit": "min"}


@pytest.mark.parametrize("kind", ["amplitude", "phase", "uniform"])
def test_a_fitted_correlation_time_is_that_of_the_gains(kind: str) -> None:
    """Over 20000 draws at one time: exp(-dt / T), segment 2 without data, whatever T is."""
    prior = {"amplitude": LogNormal(0.2, 1.5), "phase": Normal("20 deg", "10 deg"), "uniform": TURN}[kind]
    key = "amplitude" if kind == "amplitude" else "phase"
    gain = Gain(
        **{key: PerSegment(prior, per="integration", correlated=TIMES)}, antennas=["C"], reference="none"
    )
    time = np.array([0.0, 60.0, 120.0, 420.0])
    seen = weights([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1]])
    view = view_of(np.zeros((4, 3)), CIRCULAR, time=time, interval=60.0, weights=seen)
    bound = bound_to(gain, views=[view])
    assert bound.parameter_names[0] == f"gain.{key}.correlated"
    assert bound.parameters[0].unit == "min"
    assert bound.n_param == 4
    rng = np.random.default_rng(1)
    for minutes in (2.0, 10.0):
        theta = bound.prior_transform(rng.random((20000, bound.n_param)))
        theta[:, 0] = minutes
        found = spread(terms_of(bound, theta))[:, [0, 2, 3], 2, 0, 0, 0]
        kept = np.exp(-np.abs(time[[0, 2, 3]][:, None] - time[[0, 2, 3]]) / (60.0 * minutes))
        # Four standard errors, as above.
        if kind == "uniform":
            assert np.abs(found.T @ found.conj() / len(found) - kept).max() < 0.03
            continue
        x = np.log(np.abs(found) / 1.5) if kind == "amplitude" else np.angle(found) - np.radians(20)
        assert np.std(x, axis=0) == pytest.approx(0.2 if kind == "amplitude" else np.radians(10), rel=0.03)
        assert np.abs(np.corrcoef(x.T) - kept).max() < 0.03


def test_one_correlation_time_is_that_of_all_antennas_and_windows() -> None:
    """Times that are fitted equal those that are written, to roundings; other priors are refused."""
    views = [view_of(np.zeros((4, 3)), CIRCULAR, label=f"f/{spw}", spw=spw) for spw in ("spw0", "spw1")]
    phase = PerSegment(TURN, per="integration", correlated=TIMES)
    gain = Gain(phase=phase, amplitude=PerSegment(LogNormal(0.1), per="integration", correlated=TIMES))
    bound = bound_to(gain, views=views)
    names = bound.parameter_names
    assert [name for name in names if "correlated" in name] == [
        "gain.amplitude.correlated", "gain.phase.correlated"
    ]  # fmt: skip
    assert not any(is_gain(name) for name in names if "correlated" in name)
    known = [replace(one, correlated=f"{n} min") for one, n in ((gain.amplitude, 3), (phase, 7))]
    fixed = bound_to(replace(gain, amplitude=known[0], phase=known[1]), views=views)
    theta = bound.prior_transform(np.random.default_rng(2).random((2, bound.n_param)))
    of_time = [names.index(f"gain.{key}.correlated") for key in ("amplitude", "phase")]
    theta[:, of_time] = 3.0, 7.0
    found, wanted = terms_of(bound, theta, 1), terms_of(fixed, np.delete(theta, of_time, axis=1), 1)
    assert np.allclose(spread(found), spread(wanted), rtol=1e-13)
    other = replace(phase, correlated={**TIMES, "high": 30})
    with pytest.raises(ModelError, match=r"gain\.phase\.correlated: biro fits one correlation time for all"):
        bound_to(replace(gain, antenna={"C": {"phase": other}}), views=views)


EVERYTHING = Gain(
    amplitude=PerSegment(LogNormal(0.3), per="integration", correlated="1 min", chan_blocks=2),
    phase=PerSegment(TURN, per="integration", correlated="1 min"),
    delay=PerSegment(Normal("0 s", "20 ns"), per="20 s"),
    rate=Normal("0 Hz", "5 mHz"),
    feeds="ratio",
    ratio_amplitude=LogNormal(0.3),
    ratio_phase=TURN,
    antenna={
        "C": {"amplitude": LogNormal(0.5), "phase": Normal("0 deg", "30 deg")},
        "B": {"ratio_phase": "0 deg"},
    },
)
FITTED_TIMES = Gain(
    amplitude=PerSegment(LogNormal(0.3), per="integration", correlated=TIMES, chan_blocks=2),
    phase=PerSegment(TURN, per="integration", correlated={**TIMES, "unit": "s"}),
    antenna={
        "C": {"phase": PerSegment(Normal("0 deg", "30 deg"), per="20 s", correlated={**TIMES, "unit": "s"})}
    },
    feeds="separate",
)
SECOND = Gain(
    phase=PerSegment(Normal("0 deg", "20 deg"), per="20 s", chan_blocks=2),
    amplitude=PerSegment(LogNormal(0.1, 2.0), per=["integration", "all"]),
    feeds="separate",
    reference="B",
)


@pytest.mark.parametrize(
    ("corr_type", "rotation", "first"),
    [
        *(
            (corr_type, word, EVERYTHING)
            for corr_type in (CIRCULAR, LINEAR)
            for word in ("present", "corrected")
        ),
        (CIRCULAR, "present", FITTED_TIMES),
    ],
)
def test_derivatives_are_those_of_differences_and_adjoint(
    corr_type: tuple[str, ...], rotation: str, first: Gain
) -> None:
    rng = np.random.default_rng(1)
    other = view_of(rng.normal(size=(2, 3)), corr_type, label="f/spw1", spw="spw1")
    feeds = Feeds(rotation=rotation, offset=Normal(0, 5, "deg"))
    leakage = Leakage(
        **dict.fromkeys(("d_r", "d_l") if corr_type == CIRCULAR else ("d_x", "d_y"), Normal(0, 0.1))
    )
    views = [view_of(rng.normal(size=(4, 3)), corr_type), other]
    bound = bound_to(first, SECOND, views=views, feeds=feeds, leakage=leakage)
    theta = bound.prior_transform(rng.uniform(0.2, 0.8, size=(2, bound.n_param)))
    spreads = np.diff(bound.prior_transform(np.array([[0.4], [0.6]]) * np.ones(bound.n_param)), axis=0)
    # Third derivatives are ~ 10.
    check_push_and_pull(bound, theta, rng.normal(size=theta.shape) * spreads, rng, 1e-6)


def test_gains_are_those_of_the_matrices() -> None:
    short = Gain(
        amplitude=PerSegment(LogNormal(0.3), per="20 s", chan_blocks=2), phase=PerSegment(TURN, per="20 s")
    )
    for gains in ((short,), (EVERYTHING, SECOND), (Gain(amplitude=2.0),)):
        bound = bound_to(*gains)
        theta = bound.prior_transform(np.random.default_rng(1).random((2, bound.n_param)))
        wanted = np.einsum("ntafii->ntafi", spread(terms_of(bound, theta)))
        for chan in (0, 4):
            found = bound.gains(theta, 0, chan)
            assert np.allclose(found, wanted[:, :, :, chan], rtol=1e-14)  # the same sums


def test_thousands_of_gains_are_bound_in_no_time() -> None:
    names = tuple(f"a{i}" for i in range(64))
    gain = Gain(
        amplitude=PerSegment(LogNormal(0.1), per="integration"), phase=PerSegment(TURN, per="integration")
    )
    bound = bound_to(gain, views=[view_of(np.zeros((100, 64)), CIRCULAR, names)])
    assert bound.n_param == 64 * 100 + 63 * 100
    theta = bound.prior_transform(np.full((1, bound.n_param), 0.5))
    assert spread(terms_of(bound, theta)).shape == (1, 100, 64, 5, 2, 2)


def test_model_files_keep_fitted_gains() -> None:
    sky = SkyModel([POINT], gain=[EVERYTHING, SECOND])
    assert from_toml(sky.to_toml()) == sky
    fitted = SkyModel([POINT], gain=[FITTED_TIMES])
    assert from_toml(fitted.to_toml()) == fitted
    text = """
[gain]
amplitude = { prior = "log-normal", sd = 0.1, per = "scan" }
phase = { prior = "uniform", per = "integration", correlated = "10 min" }
reference = "auto"

[gain.antenna.LM]
amplitude = { prior = "log-normal", sd = 1.0, per = "scan" }
phase = { prior = "normal", sd = "20 deg" }

[[source]]
name = "p"
east = "0 rad"
north = "0 rad"
I = "1 Jy"
"""
    sky = from_toml(text)
    assert sky.gain == Gain(
        amplitude=PerSegment(LogNormal(0.1), per="scan"),
        phase=PerSegment(TURN, per="integration", correlated="10 min"),
        antenna={
            "LM": {"amplitude": PerSegment(LogNormal(1.0), per="scan"), "phase": Normal("0 deg", "20 deg")}
        },
    )
    assert from_toml(sky.to_toml()) == sky
    twice = from_toml(text.replace("[gain]", "[[gain]]") + '\n[[gain]]\nphase = "3 deg"\n')
    assert len(twice.gains) == 2
    assert from_toml(twice.to_toml()) == twice


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"amplitude": Normal(1, 0.1)},
            "amplitude: an amplitude is above 0, so its prior must be, too: log-normal",
        ),
        ({"amplitude": "gain.amplitude[A]"}, "amplitude: gains cannot be tied; give a number or a prior"),
        ({"phase": {"prior": "uniform", "per": "scans"}}, r"phase: .*per: track, scan.*did you mean 'scan'"),
        (
            {"phase": {"prior": "uniform", "per": ["scan", "track"]}},
            "one length of time and one of partition",
        ),
        ({"phase": {"prior": "uniform", "per": "-3 s"}}, "per: track, scan, integration, a time such as"),
        ({"phase": {"prior": "uniform", "correlated": "3 s"}}, "there is one segment"),
        (
            {"phase": {"prior": "uniform", "low": "0 deg", "per": "scan", "correlated": "3 s"}},
            "uniform over 360 deg, found uniform",
        ),
        ({"phase": {"prior": "uniform", "per": "scan", "correlated": 3}}, "correlated: 3 has no unit"),
        (
            {"phase": {"prior": "uniform", "per": "scan", "correlated": {**TIMES, "unit": "m"}}},
            "correlated: unit 'm' is not a time",
        ),
        (
            {"phase": {"prior": "uniform", "per": "scan", "correlated": Normal("9 s", "3 s")}},
            "correlated: a correlation time is above 0, so its prior must be, too: .*found normal",
        ),
        (
            {"phase": {"prior": "uniform", "per": "scan", "correlated": "source.I"}},
            "correlated: expected a time above 0 such as '10 min', or a prior of one",
        ),
        ({"phase": {"prior": "uniform", "chan_blocks": 0}}, "chan_blocks: from 1 to 10000, found 0"),
        ({"phase": {"prior": "uniform", "chan_blocks": 6}}, "chan_blocks = 6 is more than the 5 channels"),
        ({"phase": {"prior": "uniform", "unit": "Jy"}}, "cannot be expressed in"),
        ({"delay": "3 ns"}, "a delay must have a prior, or be 0 for a reference antenna"),
        ({"feeds": "both"}, "feeds: one of common, separate, ratio, found 'both'"),
        ({"feeds": "ratio"}, "needs ratio_amplitude, ratio_phase or both"),
        ({"ratio_phase": TURN}, 'ratio_phase: is only for feeds = "ratio", found feeds = "common"'),
        ({"phase": {"r": TURN}}, 'phase: priors by feed are only for feeds = "separate"'),
        ({"phase": TURN, "reference": "Z"}, "gain: no antenna is called 'Z'"),
        ({"amplitude": {"prior": "log-normal", "sd": "0.1 Jy"}}, "sd is a plain number, found 0.1 Jy"),
    ],
)
def test_gains_that_cannot_be_are_refused_in_one_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        bound_to(Gain(**given))
    assert "\n" not in str(caught.value)


def test_a_reference_without_data_is_named() -> None:
    view = view_of(np.zeros((2, 3)), CIRCULAR, weights=weights([[1, 2, 0], [3, 2, 0]]))
    with pytest.raises(ModelError, match="gain: reference 'C' has no data with weights"):
        bound_to(Gain(phase=TURN, reference="C"), views=[view])
