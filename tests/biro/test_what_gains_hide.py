"""What data with unknown gains do not say is named, however gains are treated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import biro
from biro.errors import InputError
from biro.many_fits.one_fit import lines_before
from biro.models import (
    Feeds,
    Gain,
    Leakage,
    LogNormal,
    LogUniform,
    Noise,
    PerSegment,
    PointSource,
    SkyModel,
    Uniform,
)
from tests.biro.test_fitted_gains import small

FREE_PHASES = PerSegment(Uniform(-180, 180, "deg"), per="integration")


def two_points(amplitude: PerSegment, *, tied: bool = False) -> SkyModel:
    """Two flux densities, or one of them, beside amplitudes and phases of all antennas."""
    free = Uniform("0.1 Jy", "3 Jy")
    return SkyModel(
        [
            PointSource("a", east="0 arcsec", north="0 arcsec", I="1 Jy" if tied else free),
            PointSource("b", east="20 arcsec", north="5 arcsec", I=free),
        ],
        noise=Noise(factor=1.0),
        gain=Gain(amplitude=amplitude, phase=FREE_PHASES),
    )


def seen(rows: np.ndarray | None = None) -> biro.Observation:
    """The parallel hands of five antennas, the weight 0 but for some rows."""
    part = small().partitions[0]
    weight = part.weight * (1.0 if rows is None else rows[:, None, None])
    hands = [0, 3]
    return biro.Observation.from_arrays(
        part.vis[..., hands] + 1.0, part.uvw, part.antenna1, part.antenna2, part.times[part.time_index],
        part.chan_freq, ("RR", "LL"), weight=weight[..., hands], antenna_names=list("ABCDE"), interval=10.0,
    )  # fmt: skip


@pytest.mark.parametrize("gains", ["sample", "marginalise", "solve"])
@pytest.mark.parametrize("prior", [LogUniform(0.1, 10), LogNormal(0.2)])
def test_the_flux_scale_is_named_for_every_treatment(gains: str, prior: LogUniform | LogNormal) -> None:
    """Twice all flux densities and gains smaller by sqrt(2) are the same visibilities."""
    scale = PerSegment(prior, per="track")
    free = biro.Likelihood(seen(), two_points(scale), backend="cpu", gains=gains)
    assert free.undetermined.startswith(
        "DEGENERATE: the data do not constrain the overall flux scale (amplitude gains x fluxes): "
        "gain.amplitude[*] with a.I, b.I; only the priors do. "
    )
    tied = biro.Likelihood(seen(), two_points(scale, tied=True), backend="cpu", gains=gains)
    assert tied.undetermined == ""
    # The result has the line, and the lines before a fit, none of which comes twice, have it not.
    before = lines_before(free)
    assert free.undetermined not in before
    assert len(before) == len(set(before))
    assert free.undetermined in free.remarks(free.model.prior_transform(np.full((1, free.n_param), 0.5))[0])


@pytest.mark.parametrize("known", [False, True])
def test_combinations_of_gains_alone_are_not_named_where_they_are_integrated_over(known: bool) -> None:
    """Without a reference, the phases of all antennas together, at each of six times; whatever the sky is."""
    sky = two_points(PerSegment(LogNormal(0.2)), tied=True)
    sky = replace(
        sky, gain=replace(sky.gain[0] if isinstance(sky.gain, tuple) else sky.gain, reference="none")
    )
    if known:
        sky = replace(sky, sources=[replace(source, I="1 Jy") for source in sky.sources])
    sampled = biro.Likelihood(seen(), sky, backend="cpu")
    assert sampled.undetermined.startswith(
        "DEGENERATE: the data do not constrain a common phase of all antennas: gain.phase[*] "
        "of each of time 1, "
    )
    assert biro.Likelihood(seen(), sky, backend="cpu", gains="marginalise").undetermined == ""


def test_closures_name_the_flux_scale_in_the_same_words() -> None:
    sky = replace(two_points(PerSegment(LogNormal(0.2))), gain=None)
    free = biro.Likelihood(seen(), sky, backend="cpu", gains="closures")
    assert free.undetermined.startswith(
        "DEGENERATE: the data do not constrain the overall flux scale (amplitude gains x fluxes): a.I"
    )
    one = replace(sky, sources=[replace(sky.sources[0], I="1 Jy"), *sky.sources[1:]])
    assert biro.Likelihood(seen(), one, backend="cpu", gains="closures").undetermined == ""


def test_closures_beside_leakages_leave_the_phase_between_feeds_open() -> None:
    """exp(i x) of Q + iU and leakages of R, exp(-i x) of those of L: the same closures (physics: 6)."""
    free = Uniform(-0.3, 0.3)
    sky = SkyModel(
        [
            PointSource("a", east="0 arcsec", north="0 arcsec", I="1 Jy", Q=Uniform(-1, 1, "Jy"), U="0.2 Jy"),
            PointSource("b", east="20 arcsec", north="5 arcsec", I="0.7 Jy", Q="0.1 Jy", U="-0.1 Jy"),
        ],
        noise=Noise(factor=1.0),
        leakage=Leakage(d_r=free, d_l=free),
        feeds=Feeds(mount="equatorial"),
    )  # fmt: skip
    for fixed in (True, False):
        sources = [sky.sources[0], sky.sources[1]]
        if not fixed:
            angle = Uniform(-1, 1, "Jy")
            sources = [replace(one, Q=angle, U=angle) for one in sources]
        likelihood = biro.Likelihood(seen(), replace(sky, sources=sources), backend="cpu", gains="closures")
        named = "the R-L (or X-Y) phase offset" in likelihood.undetermined
        assert named is not fixed


def without(antenna: int, partner: int, *, times: slice) -> np.ndarray:
    """Rows that have weight: of an antenna, at some times, those with one partner alone."""
    part = small().partitions[0]
    of_it = (part.antenna1 == antenna) | (part.antenna2 == antenna)
    of_both = of_it & ((part.antenna1 == partner) | (part.antenna2 == partner))
    at = np.isin(part.time_index, np.arange(6)[times])
    return ~(of_it & at) | of_both


@pytest.mark.parametrize("gains", ["sample", "marginalise", "solve"])
def test_gains_that_one_baseline_sees_are_named(gains: str) -> None:
    """E is linked to D alone: always, or at the third time, where a gain of the scan sees more."""
    sky = two_points(PerSegment(LogNormal(0.2), per="scan"), tied=True)
    always = biro.Likelihood(seen(without(4, 3, times=slice(6))), sky, backend="cpu", gains=gains)
    # Two amplitudes of scans and six phases.
    assert always.lone_gains.startswith(
        "8 parameters of gains have a single baseline: gain.amplitude[E][scan"
    )
    once = biro.Likelihood(seen(without(4, 3, times=slice(2, 3))), sky, backend="cpu", gains=gains)
    assert once.lone_gains.startswith("1 parameter of gains has a single baseline: gain.phase[E][time 3].")
    assert biro.Likelihood(seen(), sky, backend="cpu", gains=gains).lone_gains == ""


def test_antennas_of_closures_with_one_baseline_are_named() -> None:
    sky = replace(two_points(PerSegment(LogNormal(0.2))), gain=None)
    lone = biro.Likelihood(seen(without(4, 3, times=slice(6))), sky, backend="cpu", gains="closures")
    assert lone.lone_gains.startswith("1 antenna with a single baseline: E. Its gain absorbs")
    whole = biro.Likelihood(seen(), sky, backend="cpu", gains="closures")
    assert whole.lone_gains == ""


def test_closures_of_flagged_data_say_so() -> None:
    sky = replace(two_points(PerSegment(LogNormal(0.2))), gain=None)
    (part,) = seen().partitions
    flagged = replace(seen(), partitions=(replace(part, weight=0.0 * part.weight),))
    with pytest.raises(InputError, match="no closures: all visibilities are flagged or have no weight"):
        biro.Likelihood(flagged, sky, backend="cpu", gains="closures")
