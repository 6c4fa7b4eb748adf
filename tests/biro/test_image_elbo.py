"""The lower bound of the evidence of images: against closed forms, quadrature and nifty; comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biro.errors import InputError
from biro.image_posterior.field import ImageField
from biro.image_posterior.results.elbo import compare_images
from biro.image_posterior.results.result import ImagePosterior
from tests.biro.commands import biro as run_biro

pytest.importorskip("nifty.re", reason="needs the extra images")

from biro.image_posterior.sampling import jax_room


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    with jax_room.double_precision():
        yield


class Measured:
    """Data with unit noise of a function of standard normal numbers."""

    def __init__(self, function: Callable[[Any], Any], data: np.ndarray, n: int) -> None:
        self.visibilities, self._data, self.n, self.n_data = function, data, n, len(data) // 2
        self.is_hyper = np.zeros(n, bool)
        self.watched: list[Any] = []

    def likelihood(self) -> Any:
        import jax
        import nifty.re as jft

        from biro.image_posterior.sampling.models.visibility_model import unit_noise

        made = jft.Gaussian(jax.numpy.asarray(self._data), noise_cov_inv=unit_noise, noise_std_inv=unit_noise)
        return made.amend(self.visibilities, domain=jax.ShapeDtypeStruct((self.n,), jax.numpy.float64))


@pytest.mark.parametrize("method", ["mgvi", "geovi"])
def test_of_a_linear_model_it_is_the_evidence(method: Any) -> None:
    """ln Z of d = A xi + noise is that of a normal distribution with the covariance A A^T + 1."""
    import jax.numpy as jnp
    import nifty.re as jft

    from biro.image_posterior.sampling.draws import Settings
    from biro.image_posterior.sampling.variational import sample

    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(40, 20))
    data = matrix @ rng.normal(size=20) + rng.normal(size=40)
    model = Measured(lambda xi: jnp.asarray(matrix) @ xi, data, 20)
    settings = Settings(method=method, n_samples=8, n_iterations=4, n_pairs=4, elbo=True)
    draws = sample(model, np.zeros(20), settings)
    covariance = matrix @ matrix.T + np.eye(40)
    # The constant of the noise, 20 ln(2 pi), is added where the weights are known.
    evidence = -0.5 * (data @ np.linalg.solve(covariance, data) + np.linalg.slogdet(covariance)[1])
    assert draws.elbo is not None
    # The maximum is found to 0.02 in energy at most, here to rounding; nothing scatters.
    assert draws.elbo.value == pytest.approx(evidence, abs=0.02)
    assert draws.elbo.error < 0.02
    pairs = jft.Samples(
        pos=jnp.asarray(draws.mean), samples=jnp.asarray(draws.samples - draws.mean), keys=None
    )
    found, _ = jft.estimate_evidence_lower_bound(
        model.likelihood(), pairs, 20, compute_all=True, verbose=False, output_directory=None
    )
    # nifty leaves the scatter of samples in, sqrt(20 / 2) of each of 4 pairs.
    assert found.mean() == pytest.approx(draws.elbo.value, abs=3.0 * np.sqrt(20 / 2 / 4))


def test_of_a_model_that_is_not_linear_it_lies_below() -> None:
    """Rates exp(a + b/2) of two numbers, with ln Z by quadrature."""
    import jax.numpy as jnp

    from biro.image_posterior.sampling.draws import Settings
    from biro.image_posterior.sampling.variational import sample

    data, factor = np.array([2.0, 3.0, 1.5, 2.0]), np.array([1.0, 1.5, 0.5, 1.0])
    model = Measured(lambda xi: jnp.exp(xi[0] + 0.5 * xi[1]) * factor, data, 2)
    axis = np.linspace(-7.0, 7.0, 561)
    a, b = np.meshgrid(axis, axis, indexing="ij")
    rate = np.exp(a + 0.5 * b)[..., None] * factor
    log = -0.5 * ((data - rate) ** 2).sum(axis=-1) - 0.5 * (a**2 + b**2) - np.log(2.0 * np.pi)
    evidence = float(np.log(np.exp(log).sum() * (axis[1] - axis[0]) ** 2))
    settings = Settings(method="geovi", n_samples=24, n_iterations=8, n_pairs=8, elbo=True)
    draws = sample(model, np.zeros(2), settings)
    assert draws.elbo is not None
    # The posterior is nearly normal, so that the bound is near; its error here is 0.01.
    assert evidence - 0.15 < draws.elbo.value < evidence + 3.0 * draws.elbo.error


ABOUT = {"freq_frame": "TOPO", "field": "a", "telescope": "b", "date": "2026-03-01", "origin": "c"}


def result(
    value: float,
    *,
    data: str = "d",
    method: str = "geovi",
    remarks: tuple[str, ...] = (),
    error: float | None = 0.5,
) -> ImagePosterior:
    return ImagePosterior(
        name="x", prior="pixels", field=ImageField(16, 1e-5, (0.0, 0.0)), samples=np.ones((2, 1, 16, 16)),
        is_map=False, labels=("a",), chi2=(1.0,), n_data=(1,), noise=1.0, residual=np.zeros((1, 16, 16)),
        beam=None, about=ABOUT | {"freq": 1e9, "bandwidth": 1e6}, remarks=remarks,
        facts={"method": method, "elbo": {"value": value, "error": error, "data": data}},
    )  # fmt: skip


def test_images_of_the_same_data_are_compared_and_limits_stand_below(tmp_path: Path) -> None:
    table = compare_images({"one": result(-20.0), "two": result(-12.0), "near": result(-12.5)})
    assert [one.name for one in table.standings] == ["two", "near", "one"]
    assert table.standings[2].below == pytest.approx(-8.0)
    assert table.standings[2].below_err == pytest.approx(np.hypot(0.5, 0.5))
    text = str(table)
    assert "near: within 2 errors of the highest, not told apart." in text
    assert "The ELBO is a lower bound of ln evidence." in text
    assert str(
        compare_images({"one": result(1.0, remarks=("NOT CONVERGED",)), "two": result(2.0)})
    ).startswith("one: NOT CONVERGED")
    assert "ELBO          -20.00 +- 0.5, at most ln evidence" in str(result(-20.0))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (result(1.0, data="e"), "was fitted to other data than a"),
        (result(1.0, method="mgvi"), "b: has samples of mgvi, a of geovi"),
        (replace(result(1.0), facts={"method": "hmc"}), "b: has no ELBO; fit it with --set elbo=1"),
        (result(1.0, error=None), "b: the error of its ELBO is not known"),
    ],
)
def test_what_cannot_be_compared_is_refused(other: ImagePosterior, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare_images({"a": result(0.0), "b": other})


def test_the_command_compares_images_but_not_with_other_runs(tmp_path: Path) -> None:
    for name, value in (("a", -3.0), ("b", 4.0)):
        result(value).save(tmp_path / name, pictures=False)
    code, out, _ = run_biro("compare", tmp_path / "a", tmp_path / "b")
    assert code == 0
    assert out.splitlines()[2].split()[:3] == [str(tmp_path / "b"), "pixels", "4.00"]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "run.json").write_text("{}")
    code, _, err = run_biro("compare", tmp_path / "a", tmp_path / "c")
    assert code == 2
    assert "cannot be compared with evidences of other runs" in err


@pytest.mark.parametrize("value", [2, "yes"])
def test_other_values_of_the_option_are_refused(value: Any) -> None:
    from biro.image_posterior.sampling.draws import Settings

    with pytest.raises(InputError, match="elbo: 1 or 0"):
        Settings(elbo=value)


def test_an_error_that_is_not_known_is_stated() -> None:
    assert "ELBO          1.00, error not known, at most ln evidence" in str(result(1.0, error=None))


def test_too_few_samples_are_refused() -> None:
    """One pair has no error of the ELBO, and one sample of chains no error at all."""
    from biro.image_posterior.sampling.draws import Settings

    with pytest.raises(InputError, match="n_samples = 4 at least, found 2"):
        Settings(elbo=True, n_samples=2)
    with pytest.raises(InputError, match="at least 2 samples, found 1"):
        Settings(method="hmc", n_samples=1)


def test_gains_of_large_data_have_no_bound() -> None:
    """They are solved for without their priors, which the evidence would have."""
    from types import SimpleNamespace

    from biro.image_posterior.sampled import _with_elbo

    problem: Any = SimpleNamespace(closures=False, sky=SimpleNamespace(gains=("g",)), options={})
    model: Any = SimpleNamespace(n=10, n_data=300_000, is_convolved=True)
    with pytest.raises(InputError, match="gains beside 300000 visibilities"):
        _with_elbo(problem, model, "mgvi")
