"""The Fisher information against second derivatives where data are the model, and against closed forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from test_gradient import FIXED_NOISE, NOISE, RICH, image_of_a_blob, snapshots
from test_likelihood import ONE_SOURCE, joined, observation, sky

import biro
from biro.errors import InputError
from biro.models import (
    Cos3Beam,
    ImageTerm,
    LogUniform,
    Noise,
    Normal,
    Pointing,
    PointSource,
    SkyModel,
    Uniform,
)

Array = NDArray[np.float64]


def likelihood_of_model(
    obs: biro.Observation, model: SkyModel, unit: float = 0.4
) -> tuple[biro.Likelihood, Array]:
    """A likelihood whose data are those of a theta, and this theta."""
    first = biro.Likelihood(obs, model)
    theta = first.prior_transform(unit + 0.1 * np.random.default_rng(1).random(first.n_param))
    seen = first.predict(theta)
    parts = [replace(part, vis=vis) for part, vis in zip(obs.partitions, seen, strict=True)]
    return biro.Likelihood(replace(obs, partitions=tuple(parts)), model), theta


def check(likelihood: biro.Likelihood, theta: Array) -> None:
    """Where nothing is left over, F is minus the second derivatives, but for the noise."""
    found = likelihood.fisher(theta)
    np.testing.assert_allclose(found, found.T, rtol=1e-13)
    scale = np.sqrt(np.diag(found))
    step = 1e-3 / scale
    expected = np.empty(found.shape)
    for i, axis in enumerate(np.diag(step)):
        rise = [
            likelihood.log_likelihood_and_gradient(theta + k * axis)[1]
            - likelihood.log_likelihood_and_gradient(theta - k * axis)[1]
            for k in (1, 2, 3)
        ]
        expected[i] = -(0.75 * rise[0] - 0.15 * rise[1] + rise[2] / 60.0) / step[i]
    noise = np.zeros(likelihood.n_param, bool)
    noise[list(likelihood.model.noise_parameters)] = True
    seen, sizes = np.outer(~noise, ~noise), np.outer(scale, scale)
    # In units of what each parameter is known to: rounding of some 1e-12 of gradients over 1e-3.
    np.testing.assert_allclose((found / sizes)[seen], (expected / sizes)[seen], rtol=0, atol=1e-7)
    np.testing.assert_array_equal(found[np.outer(noise, ~noise)], 0.0)
    factor = likelihood.noise_factor(theta)
    for i, (together, unit) in likelihood.model.noise_parameters.items():
        samples = likelihood.n_vis[together] / factor[together] ** 2
        assert found[i, i] == pytest.approx(4.0 * unit**2 * samples.sum(), rel=1e-13)
    change = np.random.default_rng(2).normal(size=theta.size) / scale
    product = likelihood.fisher_product(theta, change)
    # Sums of as many terms, in another order.
    np.testing.assert_allclose(product / scale, found @ change / scale, rtol=0, atol=1e-11)


def test_of_points_and_gaussians_and_noise(tmp_path: Path) -> None:
    check(*likelihood_of_model(snapshots(), sky(RICH + NOISE, tmp_path)))


@pytest.mark.parametrize("per", ["partition", "all"])
def test_of_several_partitions(tmp_path: Path, per: str) -> None:
    parts = [
        observation(1, field="A", phase_centre=(1.0, 0.5)),
        observation(2, n_row=60, field="B", phase_centre=(1.0001, 0.5)),
    ]
    check(*likelihood_of_model(joined(*parts), sky(RICH + NOISE + f'per = "{per}"\n', tmp_path)))


def test_of_beams_and_pointing_errors() -> None:
    """Of points far out, so that the beam counts: errors of one antenna that grow in time, and of all."""
    sources = [
        PointSource(f"s{i}", east=f"{east} arcmin", north="5 arcmin", I=Uniform(1, 5, "Jy"))
        for i, east in enumerate((20, -15))
    ]
    pointing = Pointing(
        east=[Normal(0, 20, "arcsec"), Normal(0, 20, "arcsec")],
        antenna={"1": {"east": "0 arcsec", "north": Normal(0, 1, "arcmin")}},
    )
    beam = Cos3Beam(Uniform(20, 30, "1/GHz"))
    model = SkyModel(sources, beam=beam, pointing=pointing, noise=Noise(1))
    check(*likelihood_of_model(snapshots(), model))


def test_of_images_that_move() -> None:
    """Seen from centres so far apart that norths differ."""
    image = ImageTerm(
        "halo", file=image_of_a_blob(), scale=Uniform(0, 2), east=Uniform(-9, 9, "arcsec"),
        north=Uniform(-9, 9, "arcsec"),
    )  # fmt: skip
    source = PointSource("s", east="0 rad", north="0 rad", I=Uniform(0, 2, "Jy"))
    model = SkyModel(source, images=[image], noise=Noise(LogUniform(0.3, 3)))
    parts = [observation(i, field=f"F{i}", phase_centre=(1.0 + 1e-2 * i, 0.5)) for i in range(2)]
    check(*likelihood_of_model(joined(*parts), model))


def test_of_fluxes_is_the_curvature_of_the_linear_problem(tmp_path: Path) -> None:
    """Whatever the data, and wherever: minus the second derivatives of a parabola."""
    model = SkyModel(
        [
            PointSource(f"s{i}", east=f"{20 * i} arcsec", north="5 arcsec", I=Uniform(-5, 5, "Jy"))
            for i in range(4)
        ],
        noise=Noise(1.3),
    )
    likelihood = biro.Likelihood(snapshots(), model)
    theta = np.array([1.0, -2.0, 0.5, 3.0])
    found = likelihood.fisher(theta)
    for i, axis in enumerate(np.eye(4)):
        rise = likelihood.log_likelihood_and_gradient(theta + axis)[1]
        fall = likelihood.log_likelihood_and_gradient(theta - axis)[1]
        np.testing.assert_allclose(found[i], 0.5 * (fall - rise), rtol=0, atol=1e-12 * found.max())
    np.testing.assert_allclose(likelihood.fisher(-theta), found, rtol=0, atol=1e-13 * found.max())


def test_with_students_t(tmp_path: Path) -> None:
    """(nu + 2) / (nu + 4) of what Gaussian noise has for the sky; of s 4 N nu / ((nu + 4) s^2)."""
    text = RICH + FIXED_NOISE
    obs = snapshots()
    gaussian = biro.Likelihood(obs, sky(text, tmp_path))
    theta = gaussian.prior_transform(np.full(gaussian.n_param, 0.4))
    model = replace(sky(text, tmp_path), noise=Noise(1.7, distribution="student-t", dof=5.0))
    student = biro.Likelihood(obs, model)
    expected = gaussian.fisher(theta) * 7.0 / 9.0 / 1.7**2
    np.testing.assert_allclose(
        student.fisher(theta), expected, rtol=1e-12, atol=1e-13 * np.abs(expected).max()
    )
    free = replace(model, noise=Noise(LogUniform(0.5, 2), distribution="student-t", dof=Uniform(2, 9)))
    student = biro.Likelihood(obs, free)
    point = np.concatenate([theta, [1.7, 5.0]])
    found = student.fisher(point)
    np.testing.assert_allclose(found[:-2, :-2], expected, rtol=1e-12, atol=1e-13 * np.abs(expected).max())
    n_vis = student.n_vis[0]
    of_noise = [[20.0 / (9.0 * 1.7**2), -4.0 / (63.0 * 1.7)], [-4.0 / (63.0 * 1.7), 8.0 / (25.0 * 63.0)]]
    np.testing.assert_allclose(found[-2:, -2:], n_vis * np.array(of_noise), rtol=1e-12)
    np.testing.assert_array_equal(found[-2:, :-2], 0.0)


def test_errors(tmp_path: Path) -> None:
    likelihood = biro.Likelihood(snapshots(), sky(RICH + NOISE, tmp_path))
    theta = likelihood.prior_transform(np.full(likelihood.n_param, 0.5))
    with pytest.raises(InputError, match="expected one vector theta"):
        likelihood.fisher(theta[None])
    with pytest.raises(InputError, match="expected one vector theta"):
        likelihood.fisher_product(theta, theta[None])
    text = ONE_SOURCE + FIXED_NOISE + '[[constraint]]\nbounds = "a.I"\nlow = "0 Jy"\n'
    with pytest.raises(InputError, match="theta breaks a constraint of the model"):
        biro.Likelihood(observation(), sky(text, tmp_path)).fisher([-1.0, 0.5])
