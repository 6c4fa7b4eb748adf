"""A bandpass that is fitted: amplitudes and phases of antennas by blocks of channels, beside the sky."""

from __future__ import annotations

import numpy as np

import biro
from biro.models import Gain, LogNormal, Noise, Normal, PerSegment, PointSource, SkyModel, Uniform
from tests.biro.test_fitted_gains import simulated, small

NOISE = 0.05
N_BLOCK = 2


def sky(n_block: int) -> SkyModel:
    """A source that is known and one that is not, and a complex gain of each antenna and block."""
    place, flux = Uniform("-6 arcsec", "-4 arcsec"), Uniform("0.5 Jy", "2 Jy")
    return SkyModel(
        [
            PointSource("a", east="0 arcsec", north="0 arcsec", I="1 Jy"),
            PointSource("b", east="4 arcsec", north=place, I=flux),
        ],
        noise=Noise(factor=1.0),
        gain=Gain(
            amplitude=PerSegment(LogNormal(0.2), chan_blocks=n_block),
            phase=PerSegment(Normal("0 deg", "30 deg"), chan_blocks=n_block),
        ),
    )


def test_a_bandpass_is_recovered() -> None:
    """Skies and bandpasses drawn from their priors: (maximum - truth) / error has rms 1."""
    first = biro.Likelihood(small(n_chan=2 * N_BLOCK, noise=NOISE), sky(N_BLOCK), backend="cpu")
    # Five antennas, of which one is the reference of the phases.
    assert first.n_param == 2 + N_BLOCK * (5 + 4)
    rng, pulls = np.random.default_rng(1), []
    for seed in range(2):
        truth = first.prior_transform(rng.random(first.n_param))
        data = simulated(first, truth, NOISE, seed)
        likelihood = biro.Likelihood(data, sky(N_BLOCK), backend="cpu")
        found = biro.maximise(likelihood, seed=1, starts=truth[None])
        assert found.converged
        pulls.append((found.best_fit - truth) / found.error)
        # chi2/2N of 960 complex visibilities scatters by 1 / sqrt(960) = 0.032; four of these.
        assert abs(found.reduced_chi2[0] - (1.0 - 20 / 1920)) < 0.13
    # Of 40 pulls those of a set share the flux scale: as 20, whose rms is good to 16 %; three of these.
    assert abs(np.sqrt(np.mean(np.square(pulls))) - 1.0) < 0.48
