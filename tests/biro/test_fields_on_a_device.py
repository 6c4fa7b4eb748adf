"""Shapes and beams that differ between fields, on a GPU: as on the CPU, which has tests of its own."""

from __future__ import annotations

import numpy as np
import pytest

import biro
from biro.models import GaussianSource, LogUniform, Noise, SkyModel, Uniform
from biro.models.components.beam import GaussianBeam
from tests.biro.test_likelihood import joined
from tests.rime_kernels.conftest import cuda_backend

__all__ = ["cuda_backend"]  # a fixture
pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("error::RuntimeWarning")]
CENTRES = [(0.0, np.radians(80.0)), (0.05, np.radians(80.3))]
"""Near the pole, where the norths of the source and of the phase centres differ by degrees."""


def observation(number: int) -> biro.Observation:
    """Four antennas and two times of one field."""
    rng = np.random.default_rng(number)
    place = rng.uniform(-300, 300, (4, 3)) * [1, 1, 0.1]
    p, q = np.triu_indices(4, 1)
    uvw = np.concatenate([place[p] - place[q], 1.1 * (place[p] - place[q])])
    vis = rng.normal(size=(12, 2, 2)) + 1j * rng.normal(size=(12, 2, 2))
    return biro.Observation.from_arrays(
        vis, uvw, np.tile(p, 2), np.tile(q, 2), 5e9 + np.repeat([0.0, 10.0], 6), [1.4e9, 1.5e9],
        ("XX", "YY"), weight=1.0, antenna_names=list("ABCD"), interval=10.0,
        phase_centre=CENTRES[number], field=f"F{number}",
    )  # fmt: skip


@pytest.mark.parametrize("centre", ["phase", "00h01m00s +80d12m00s"])
def test_every_field_has_its_own_shapes_and_beam(centre: str, cuda_backend: str) -> None:
    source = GaussianSource(
        "a",
        ra=Uniform(0.0, 0.05, "rad"),
        dec=Uniform(1.39, 1.41, "rad"),
        I=LogUniform(0.1, 100, "Jy"),
        emaj=Uniform(10, 200, "arcsec"),
        ratio=Uniform(0.1, 1.0),
        pa=Uniform(0, 180, "deg"),
    )
    beam = GaussianBeam(fwhm=Uniform(0.5, 10, "deg"), ref_freq="1.4 GHz", centre=centre)
    sky = SkyModel([source], beam=beam, noise=Noise(factor=1.0))
    data = joined(observation(0), observation(1))
    theta = np.array([[0.02, 1.3985, 5.0, 120.0, 0.4, 35.0, 4.0], [0.03, 1.3990, 2.0, 60.0, 0.7, 120.0, 6.0]])
    values, slopes = [], []
    for backend in ("cpu", cuda_backend):
        likelihood = biro.Likelihood(data, sky, backend=backend, precision="double")
        value, slope = likelihood.log_likelihood_and_gradient(theta)
        values.append(value)
        slopes.append(slope)
    # The two differ by the order of sums in double precision.
    np.testing.assert_allclose(values[1], values[0], rtol=1e-11)
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=1e-8, atol=1e-8 * np.abs(slopes[0]).max())
