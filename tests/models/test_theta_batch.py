"""One step's parameter vectors: what follows from them is right, and worked out once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from biro.models import GaussianSource, ModelError, Noise, PartitionView, PointSource, SkyModel, Uniform

MakeView = Callable[..., PartitionView]
HERE = {"east": "0 arcsec", "north": "0 arcsec"}


def test_a_function_is_asked_once_however_often_its_answer_is_used(view: MakeView) -> None:
    calls = []

    def below(parameters: Mapping[str, np.ndarray]) -> np.ndarray:
        calls.append(parameters["a.I"].tolist())
        return parameters["a.I"] < 5.0

    source = PointSource("a", **HERE, I=Uniform(0, 10, "Jy"))
    model = SkyModel(source, noise=Noise(1), constraints=[below]).bind([view()])
    calls.clear()
    batch = model.at([[1.0], [7.0], [4.0]])
    assert batch.allowed.tolist() == [True, False, True]
    # 1/10 per Jy, of which the constraint leaves half; that is counted on draws.
    np.testing.assert_allclose(
        batch.log_prior[[0, 2]], np.log(0.2), rtol=0, atol=5 * model.log_constraint_mass_error
    )
    assert batch.log_prior[1] == -np.inf
    assert np.isnan(batch.log_prior_slope).tolist() == [[False], [True], [False]]
    rows = batch.rows(np.array([0, 2]))
    (sources,) = rows.sources()
    assert sources.stokes[:, 0, 0, 0].tolist() == [1.0, 4.0]
    assert calls == [[1.0, 7.0, 4.0]]


def test_rows_are_those_rows_of_all_that_follows_from_theta(view: MakeView) -> None:
    angle = Uniform(0, 180, "deg")
    source = GaussianSource("g", **HERE, I="1 Jy", emaj="2 arcsec", emin="1 arcsec", pa=angle)
    model = SkyModel(source, noise=Noise(Uniform(1, 3))).bind([view("a/0"), view("b/0")])
    theta = np.array([[30.0, 1.5, 2.5], [190.0, 1.0, 2.0], [-10.0, 2.0, 1.0]])
    whole, all_rows = model.at(theta), np.arange(3)
    assert whole.rows(all_rows) is whole
    two = whole.rows(all_rows[1:])
    assert len(two) == 2
    assert two.theta.tolist() == theta[1:].tolist()
    assert two.wrapped[:, 0].tolist() == [10.0, 170.0]
    assert two.noise_factor.tolist() == [[1.0, 2.0], [2.0, 1.0]]
    assert two.noise_dof is None
    for sources in two.sources():
        np.testing.assert_allclose(sources.shape[:, 0, 2], np.deg2rad([10.0, 170.0]), rtol=1e-15)


def test_theta_of_another_shape_is_refused(view: MakeView) -> None:
    model = SkyModel(PointSource("a", **HERE, I=Uniform(0, 1, "Jy")), noise=Noise(1)).bind([view()])
    assert len(model.at([0.5])) == 1
    for theta in (0.5, [0.5, 0.5], np.zeros((1, 1, 1))):
        with pytest.raises(ModelError, match="theta must have shape"):
            model.at(theta)
