"""Likelihoods as functions of JAX: derivatives, batches, changes of variables, and samplers of others."""

from __future__ import annotations

import importlib
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

import biro
from biro.errors import InputError, LikelihoodError
from biro.models import Noise, Normal, PointSource, SkyModel
from biro.models.files.toml import from_toml
from tests.biro.ranks_program import MODEL, made
from tests.biro.started_ranks import mpiexec
from tests.biro.test_fitted_gains import plain, simulated, small

jax = pytest.importorskip("jax", reason="jax is an extra of its own")
import jax.numpy as jnp  # noqa: E402

import biro.jax  # noqa: E402

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "how_to" / "jax.md").read_text(), re.S)

MIXED = """
[[source]]
name = "a"
type = "point"
east = { prior = "uniform", low = -20, high = 20, unit = "arcsec" }
north = { prior = "normal", mean = 0, sd = 5, unit = "arcsec" }
I = { prior = "log-uniform", low = 0.1, high = 3, unit = "Jy" }
[[source]]
name = "b"
type = "gaussian"
east = "10 arcsec"
north = "-5 arcsec"
I = { prior = "log-uniform", low = 0.1, high = 3, unit = "Jy" }
emaj = "4 arcsec"
emin = "2 arcsec"
pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }
[[source]]
name = "c"
type = "point"
east = "-10 arcsec"
north = "5 arcsec"
I = { prior = "log-uniform", low = 0.1, high = 3, unit = "Jy" }
[[constraint]]
order = ["a.I", "b.I", "c.I"]
"""


@pytest.fixture(autouse=True)
def bits():
    """JAX computes with 64 bits."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def likelihood() -> biro.Likelihood:
    """Priors of several kinds, an order, a periodic angle, a free noise factor; a row without weight."""
    observation = made()
    (part,) = observation.partitions
    weight = part.weight.copy()
    weight[3] = 0.0
    observation = replace(observation, partitions=(replace(part, weight=weight),))
    return biro.Likelihood(observation, from_toml(MIXED), backend="cpu")


@pytest.fixture(scope="module")
def linear() -> tuple[biro.Likelihood, np.ndarray, np.ndarray]:
    """Two fluxes with normal priors: the posterior is normal; mean and covariance by normal equations."""
    sources = [
        PointSource(name, east=f"{east} arcsec", north="0 arcsec", I=Normal(mean, 0.5, "Jy"))
        for name, east, mean in (("a", 3, 1.0), ("b", -8, 0.0))
    ]
    found = biro.Likelihood(made(), SkyModel(sources, noise=Noise(factor=1.0)), backend="cpu")
    part = found.observation.partitions[0]
    root = np.sqrt(part.weight).ravel()
    columns = np.array([found.predict(one)[0].ravel() for one in np.eye(2)]).T * root[:, None]
    precision = (columns.conj().T @ columns).real + np.eye(2) / 0.5**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ ((columns.conj().T @ (root * part.vis.ravel())).real + np.array([1.0, 0.0]) / 0.5**2)
    return found, mean, covariance


def places(likelihood: biro.Likelihood, n: int) -> np.ndarray:
    return likelihood.prior_transform(np.random.default_rng(3).uniform(0.1, 0.9, (n, likelihood.n_param)))


@cache
def of_kind(gains: str) -> biro.Likelihood:
    """Data with gains of antennas, and one of the treatments of these."""
    sky = plain()
    fitted = biro.Likelihood(small(), sky, backend="cpu")
    data = simulated(fitted, places(fitted, 1)[0], 0.02, 6)
    return biro.Likelihood(
        data, replace(sky, gain=None) if gains == "closures" else sky, backend="cpu", gains=gains
    )


@pytest.mark.parametrize("gains", ["", "sample", "closures", "marginalise", "solve"])
def test_values_and_gradients_are_those_of_biro(gains: str, likelihood: biro.Likelihood) -> None:
    one = of_kind(gains) if gains else likelihood
    target, theta = biro.jax.likelihood(one), places(one, 3)
    # Gains begin where those of the call before ended, and are found to 1e-10 of their errors.
    off = 1e-9 if gains in ("marginalise", "solve") else 1e-12
    for own, function in (
        (one.log_likelihood_and_gradient, target.log_likelihood),
        (one.log_posterior_and_gradient, target.log_posterior),
    ):
        values, gradients = own(theta)
        same = partial(np.testing.assert_allclose, rtol=off, atol=off * np.abs(gradients).max())
        value, gradient = jax.jit(jax.value_and_grad(function))(theta[0])
        assert float(value) == pytest.approx(values[0], rel=off)
        same(gradient, gradients[0])
        same(jax.vmap(jax.grad(function))(theta), gradients)
        # Forward: the same slopes along a direction.
        along = np.random.default_rng(4).normal(size=one.n_param)
        _, slope = jax.jit(lambda x, v, f=function: jax.jvp(f, (x,), (v,)))(theta[0], along)
        same(slope, gradients[0] @ along)


def test_a_batch_is_one_call(likelihood: biro.Likelihood, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    whole = type(likelihood).log_likelihood_and_gradient

    def counted(self, theta):
        sizes.append(len(theta))
        return whole(self, theta)

    monkeypatch.setattr(type(likelihood), "log_likelihood_and_gradient", counted)
    target, theta = biro.jax.likelihood(likelihood), places(likelihood, 6)
    call = jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(target.log_likelihood), in_axes=1), in_axes=2))
    value, gradient = call(theta.T.reshape(likelihood.n_param, 2, 3))
    assert sizes == [6]
    assert value.shape == (3, 2)
    assert gradient.shape == (3, 2, likelihood.n_param)
    np.testing.assert_allclose(value.T.ravel(), likelihood.log_likelihood(theta), rtol=1e-12)
    assert jax.vmap(target.log_likelihood)(theta[:0]).shape == (0,)
    # In a loop of a compiled program each step is one call.
    sizes.clear()
    jax.lax.fori_loop(0, 3, lambda _, x: x + 1e-9 * jax.grad(target.log_likelihood)(x), jnp.asarray(theta[0]))
    assert sizes == [1, 1, 1]


def test_differences_agree_with_gradients(likelihood: biro.Likelihood) -> None:
    """Central differences, right to the step squared, of functions without other derivatives in biro."""
    target, rng = biro.jax.likelihood(likelihood), np.random.default_rng(5)
    y, along, step = rng.normal(size=likelihood.n_param), rng.normal(size=likelihood.n_param), 1e-5
    unit = rng.uniform(0.2, 0.8, likelihood.n_param)
    for function, x in ((target.log_density, y), (target.constrained, y), (target.prior_transform, unit)):
        wanted = (function(x + step * along) - function(x - step * along)) / (2 * step)
        _, found = jax.jvp(function, (x,), (along,))
        # The step squared times third derivatives of order 1e2, and roundings of 1e-16 / step.
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8 * np.abs(wanted).max())
        forward, reverse = jax.jacfwd(function)(x), jax.jit(jax.jacrev(function))(x)
        np.testing.assert_allclose(forward, reverse, rtol=1e-12, atol=1e-14 * np.abs(forward).max())


def test_densities_change_by_their_jacobians(likelihood: biro.Likelihood) -> None:
    """ln p(y) is ln p(theta) + ln |det dtheta/dy|, and the prior of theta is 1 / |det dtheta/du|."""
    target, rng = biro.jax.likelihood(likelihood), np.random.default_rng(6)
    y = rng.normal(size=likelihood.n_param)
    theta = target.constrained(y)
    (_, volume), posterior = np.linalg.slogdet(jax.jacfwd(target.constrained)(y)), target.log_posterior(theta)
    assert float(target.log_density(y)) == pytest.approx(float(posterior) + volume, rel=1e-12)
    # The gradient of the volume alone, which that of the posterior would hide.
    value, gradient = jax.value_and_grad(target.log_density)(y)
    assert float(value) == float(target.log_density(y))
    without = jax.grad(lambda x: target.log_posterior(target.constrained(x)))(y)
    volumes = [
        np.linalg.slogdet(jax.jacfwd(target.constrained)(y + s * np.eye(y.size)[0]))[1] for s in (-1e-4, 1e-4)
    ]
    # Rounded at 1e-16 of the posterior's slopes of 1e4, and off by 1e-8 third derivatives.
    assert float((gradient - without)[0]) == pytest.approx((volumes[1] - volumes[0]) / 2e-4, abs=1e-7)
    np.testing.assert_allclose(target.unconstrained(theta), y, rtol=1e-9, atol=1e-9)
    unit = rng.uniform(size=likelihood.n_param)
    _, volume = np.linalg.slogdet(jax.jacrev(target.prior_transform)(unit))
    assert likelihood.log_prior(np.asarray(target.prior_transform(unit))) == pytest.approx(-volume, rel=1e-10)


def test_visibilities_have_exact_derivatives(likelihood: biro.Likelihood) -> None:
    """J v by differences, its adjoint by the definition, J^T W J by the Fisher information."""
    visibilities, (theta, other) = biro.jax.model(likelihood), places(likelihood, 2)
    (part,), rng = likelihood.observation.partitions, np.random.default_rng(7)
    (vis,) = jax.jit(visibilities)(theta)
    np.testing.assert_allclose(vis, np.where(part.weight > 0, likelihood.predict(theta)[0], 0.0), rtol=1e-13)
    along = 1e-2 * rng.normal(size=theta.size) * np.abs(theta)
    (upper,), (lower,) = visibilities(theta + 1e-4 * along), visibilities(theta - 1e-4 * along)
    _, (moved,) = jax.jvp(visibilities, (theta,), (along,))
    # Differences are off by the step squared times third derivatives: a thousandth of 1e-8 of J v at most.
    np.testing.assert_allclose(moved, (upper - lower) / 2e-4, atol=1e-7 * np.abs(moved).max())
    slopes = rng.normal(size=vis.shape) + 1j * rng.normal(size=vis.shape)
    (pulled,) = jax.vjp(visibilities, theta)[1]((jnp.asarray(slopes),))
    assert float(pulled @ along) == pytest.approx(float((slopes * moved).sum().real), rel=1e-12)
    # Both in batches, and the metric of Gaussian noise, without the row of the noise factor.
    _, moves = jax.vmap(lambda x, v: jax.jvp(visibilities, (x,), (v,)))(
        np.stack([other, theta]), np.stack([along] * 2)
    )
    np.testing.assert_allclose(moves[0][1], moved, rtol=1e-12)
    _, push = jax.linearize(visibilities, theta)
    pull = jax.linear_transpose(push, theta)
    metric = jax.vmap(lambda v: pull((part.weight * push(v)[0].conj(),))[0])(np.eye(theta.size))
    wanted = likelihood.fisher(theta) * likelihood.noise_factor(theta)[0] ** 2
    np.testing.assert_allclose(metric[:-1, :-1], wanted[:-1, :-1], rtol=1e-9, atol=1e-10 * wanted.max())


def test_the_gradient_of_chi2_through_the_model(likelihood: biro.Likelihood) -> None:
    """A user's own chi-squared has the gradient that biro has for its ln L, up to the noise factor."""
    visibilities, theta = biro.jax.model(likelihood), places(likelihood, 1)[0]
    (part,) = likelihood.observation.partitions

    def chi2(x):
        return jnp.sum(part.weight * jnp.abs(visibilities(x)[0] - part.vis) ** 2)

    value, gradient = jax.jit(jax.value_and_grad(chi2))(theta)
    assert float(value) == pytest.approx(likelihood.chi2(theta)[0], rel=1e-12)
    wanted = likelihood.log_likelihood_and_gradient(theta)[1]
    scaled = -0.5 * np.asarray(gradient) / likelihood.noise_factor(theta)[0] ** 2
    np.testing.assert_allclose(scaled[:-1], wanted[:-1], rtol=1e-10, atol=1e-12 * np.abs(wanted).max())


def test_what_cannot_be_is_refused_in_one_line(likelihood: biro.Likelihood) -> None:
    target, (theta,) = biro.jax.likelihood(likelihood), places(likelihood, 1)
    with pytest.raises(
        InputError, match=r"shape \(7,\) or \(\.\.\., 7\), got float64 \(3,\); its parameters"
    ):
        jax.jit(target.log_likelihood)(theta[:3])
    with pytest.raises(InputError, match="real numbers"):
        target.log_posterior(theta + 0j)
    for function in (
        target.log_likelihood,
        target.log_density,
        lambda x: jnp.abs(biro.jax.model(likelihood)(x)[0]).sum(),
    ):
        with pytest.raises(InputError, match="first derivatives"):
            jax.hessian(function)(theta)
    with pytest.raises(InputError, match=r"needs a biro\.Likelihood, got float"):
        biro.jax.likelihood(1.0)
    with pytest.raises(InputError, match="use its `full`"):
        biro.jax.model(of_kind("marginalise"))
    jax.config.update("jax_enable_x64", False)
    for refused in (lambda: biro.jax.likelihood(likelihood), lambda: target.log_likelihood(theta)):
        with pytest.raises(InputError, match="jax_enable_x64"):
            refused()


def test_numbers_of_32_bits_are_taken_to_64(likelihood: biro.Likelihood) -> None:
    target, (theta,) = biro.jax.likelihood(likelihood), places(likelihood, 1).astype(np.float32)
    value, gradient = jax.value_and_grad(target.log_likelihood)(jnp.asarray(theta))
    assert float(value) == pytest.approx(likelihood.log_likelihood(theta.astype(float)), rel=1e-14)
    assert gradient.dtype == np.float32


def test_outside_the_prior_there_is_nothing(likelihood: biro.Likelihood) -> None:
    target, theta = biro.jax.likelihood(likelihood), places(likelihood, 2)
    theta[0, 0] = 30.0
    value, gradient = jax.vmap(jax.value_and_grad(target.log_posterior))(theta)
    assert value[0] == -np.inf
    assert np.isnan(gradient[0]).all()
    assert np.isfinite(gradient[1]).all()


def test_errors_of_biro_come_out(likelihood: biro.Likelihood, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are biro's own outside of compiled programs; inside, a line of JAX's error."""

    def fails(self, theta):
        raise LikelihoodError("200 of 1000 likelihood values are NaN")

    monkeypatch.setattr(type(likelihood), "log_likelihood", fails)
    target, (theta,) = biro.jax.likelihood(likelihood), places(likelihood, 1)
    with pytest.raises(LikelihoodError, match=r"^200 of 1000"):
        target.log_likelihood(theta)
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"LikelihoodError: 200 of 1000 likelihood values are NaN(\n|$)"
    ):
        jax.block_until_ready(jax.jit(target.log_likelihood)(theta))


def test_many_threads_may_call(likelihood: biro.Likelihood) -> None:
    call = jax.jit(jax.value_and_grad(biro.jax.likelihood(likelihood).log_posterior))
    theta = places(likelihood, 40)
    with ThreadPoolExecutor(8) as pool:
        found = [float(value) for value, _ in pool.map(call, theta)]
    np.testing.assert_allclose(found, likelihood.log_posterior(theta), rtol=1e-12)


def test_data_on_ranks(tmp_path: Path) -> None:
    """Compiled programs on rank 0 compute with the data of all ranks."""
    file = tmp_path / "found.npz"
    done = mpiexec(2, Path(__file__).parent / "jax_ranks_program.py", file)
    assert done.returncode == 0, done.stderr
    found, alone = np.load(file), biro.Likelihood(made(), from_toml(MODEL), backend="cpu")
    theta = alone.prior_transform(np.random.default_rng(2).uniform(size=(4, 2)))
    value, gradient = alone.log_likelihood_and_gradient(theta)
    assert int(found["ranks"]) == 2
    # Ranks sum rows in other groups: roundings of 1e-16 of the largest terms.
    np.testing.assert_allclose(found["value"], value, rtol=1e-12)
    np.testing.assert_allclose(found["gradient"], gradient, rtol=1e-10)
    (vis,) = alone.predict(theta[0])
    np.testing.assert_allclose(found["vis"], vis, rtol=1e-12)
    moved = biro.jax.model(alone)
    np.testing.assert_allclose(found["pulled"], jax.vjp(moved, theta[0])[1]((vis,))[0], rtol=1e-10)


def test_without_jax_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "biro.jax")
    with pytest.raises(ImportError, match=r'^biro\.jax needs .*; pip install "biro-rime\[images\]"$'):
        importlib.import_module("biro.jax")


@pytest.mark.parametrize(("package", "n_effective"), [("blackjax", 100), ("numpyro", 100), ("nifty.re", 25)])
def test_samplers_of_others_find_the_exact_posterior(
    package: str, n_effective: int, linear: tuple[biro.Likelihood, np.ndarray, np.ndarray]
) -> None:
    """The blocks of the page, for a posterior that is normal.

    500 draws of NUTS have 100 effective ones at least, and 25 samples of nifty are independent but for their
    mirror images. Means and widths within four errors.
    """
    pytest.importorskip(package, reason=f"{package} is no part of biro")
    likelihood, mean, covariance = linear
    jax.config.update("jax_disable_most_optimizations", True)  # which take half of the time
    (block,) = [text for text in BLOCKS if f"import {package}" in text]
    found: dict = {"biro": biro, "likelihood": likelihood}
    exec(BLOCKS[0], found)
    exec(block, found)
    width, theta = np.sqrt(np.diag(covariance)), np.asarray(found["theta"])
    assert np.all(np.abs(theta.mean(axis=0) - mean) < 4 * width / np.sqrt(n_effective))
    assert np.all(np.abs(np.log(theta.std(axis=0) / width)) < 4 / np.sqrt(2 * n_effective))
    # Whitened draws are uncorrelated: r has an error of 1/sqrt(n).
    white = np.linalg.solve(np.linalg.cholesky(covariance), (theta - mean).T)
    assert abs(np.corrcoef(white)[0, 1]) < 4 / np.sqrt(n_effective)
