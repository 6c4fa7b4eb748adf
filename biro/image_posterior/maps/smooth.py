"""The fast map: the most probable image, by cycles of a minor problem with the PSF and exact residuals.

A major cycle predicts the image by biro's gridder and grids the exact residuals, g = R^T W (d - R x0). The
minor problem minimises

    chi2(x0)/2 - <x - x0, g> + <x - x0, H (x - x0)>/2 + strength penalty

by L-BFGS-B, where H is the convolution with the PSF of twice the field, which is R^T W R but for w-terms.
With beams P it is the sum over pointings of P (PSF * P x). Where g is exact the minimum is that of the exact
chi2, however approximate H is. The cycles end when the exact chi2 stops falling.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft2, rfft2
from scipy.optimize import minimize

from biro.display.progress import bar
from biro.image_posterior.maps.map_checkpoint import MapState, read_state
from biro.image_posterior.maps.regularisers import Regulariser, make_regulariser
from biro.image_posterior.operator import ImageOperator
from biro.image_posterior.single_dish import SingleDishData
from biro.models.choices import Regularisation

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
MAX_CYCLES = 12
ENOUGH = 0.1
"""Cycles end when chi2 changes by less than this many of its standard deviations, sqrt(4 N)."""
MEMORY, N_FIRST, N_ITERATION = 20, 80, 300
"""Limits of L-BFGS-B: steps remembered, iterations at each strength of the first cycle, of later ones."""
N_STRENGTH, STEP = 5, 3.0
"""Strengths from the strongest to the weakest that the rule tries, and the ratio of those before them."""
LITTLE, NEAR = 0.003, 0.02
"""A fall of chi2 that ends the cycles, and how near to that of noise chi2 must come, relative to it."""


@dataclass(frozen=True)
class FluxPrior:
    """The flux of the image is known: mean and standard deviation, Jy."""

    mean: float
    sd: float


@dataclass(frozen=True, eq=False)
class SmoothMap:
    """The most probable image.

    Attributes
    ----------
    image : float64 (N, N), Jy/pixel
    chi2 : tuple of float
        Exact, after each major cycle.
    strength : float
    reached : bool
        Whether chi2 came down to what noise has.
    variables : float64
        z, from which another map may start.
    regulariser : Regulariser
    """

    image: Array
    chi2: tuple[float, ...]
    strength: float
    reached: bool
    variables: Array
    regulariser: Regulariser


class _Minor:
    """The minor problem: chi2/2 near an image by its exact value and gradient there, and the PSF."""

    def __init__(
        self,
        operator: ImageOperator,
        noise: float,
        flux: FluxPrior | None,
        single_dish: SingleDishData | None = None,
    ) -> None:
        self._n, self._flux, self._single_dish = operator.field.size, flux, single_dish
        self._operator, self._noise = operator, noise
        self._responses = [(one.power, _transfer(one.psf / noise**2)) for one in operator.responses]
        is_plain = operator.beams is None
        self.transfer = self._responses[0][1] if is_plain else _transfer(operator.psf / noise**2)

    def at(self, x0: Array, half_chi2: float, gradient: Array) -> None:
        """Place the problem at an image, with chi2/2 and R^T W (d - R x0) there."""
        self._x0, self._half, self._g = x0, half_chi2, gradient

    def times(self, x: Array) -> Array:
        """H x, less what free components beside the image take up of it."""
        found = -self._operator.absorbed(x) / self._noise**2
        for power, transfer in self._responses:
            if power is None:
                found = found + self._convolved(x, transfer)
            else:
                found = found + power * self._convolved(power * x, transfer)
        return np.asarray(found)

    def _convolved(self, x: Array, transfer: Array) -> Array:
        n = self._n
        return np.asarray(irfft2(transfer * rfft2(x, s=(2 * n, 2 * n)), s=(2 * n, 2 * n))[:n, :n])

    def half_chi2(self, x: Array) -> tuple[float, Array]:
        """chi2/2 and its derivatives."""
        step = x - self._x0
        curved = self.times(step)
        return self._half + float((step * (0.5 * curved - self._g)).sum()), curved - self._g

    def value(self, x: Array) -> tuple[float, Array]:
        """chi2/2, that of a single-dish map, and the penalty of the flux, with derivatives."""
        value, gradient = self.half_chi2(x)
        if self._single_dish is not None:
            of_map, slope = self._single_dish.penalty(x)
            value, gradient = value + of_map, gradient + slope
        if self._flux is not None:
            pull = (float(x.sum()) - self._flux.mean) / self._flux.sd
            return value + 0.5 * pull**2, gradient + pull / self._flux.sd
        return value, gradient

    def minimise(self, regulariser: Regulariser, z: Array, strength: float, n_iteration: int) -> Array:
        """Variables of the least chi2/2 + strength penalty."""
        shape = z.shape

        def objective(flat: Array) -> tuple[float, Array]:
            at = flat.reshape(shape)
            value, gradient = self.value(regulariser.image(at))
            penalty, slope = regulariser.penalty(at)
            whole = regulariser.pull(at, gradient) + strength * slope
            return value + strength * penalty, whole.ravel()

        found = minimize(
            objective,
            z.ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(regulariser.low, None)] * z.size,
            options={"maxiter": n_iteration, "maxcor": MEMORY, "maxfun": 2 * n_iteration, "ftol": 1e-10},
        )
        return np.asarray(found.x).reshape(shape)


def smooth_map(
    operator: ImageOperator,
    regularisation: Regularisation | Regulariser = "starlet",
    *,
    noise: float = 1.0,
    flux: FluxPrior | None = None,
    single_dish: SingleDishData | None = None,
    strength: float | None = None,
    start: SmoothMap | None = None,
    n_cycle: int = MAX_CYCLES,
    show: bool = True,
    checkpoint: Path | None = None,
) -> SmoothMap:
    """The most probable image of the data of an operator, Stokes I.

    The strength of the penalty is the largest with which chi2 / 2N is that of the noise; it is at most
    the `strongest` and at least the `weakest` of the regulariser. Where the weakest does not reach the noise,
    because of errors of calibration or a source outside, `reached` is False. The first minor problem is
    solved with falling strengths, each from the one before: bright structures first.

    Parameters
    ----------
    operator : ImageOperator
    regularisation : "starlet", "entropy", "tv", or a Regulariser
    noise : float
        Factor by which the noise is larger than the weights state.
    flux : FluxPrior, optional
    single_dish : SingleDishData, optional
        A map that the image is fitted to, too; `chi2` of the result is that of visibilities alone.
    strength : float, optional
        In place of the rule.
    start : SmoothMap, optional
        A map of similar data to start from.
    n_cycle : int
        Major cycles at most.
    show : bool
        Show a bar with chi2 of each cycle.
    checkpoint : Path, optional
        A file that each cycle replaces; where it exists, the cycles go on from it to the same bits. It must
        be of the same data and options.
    """
    minor = _Minor(operator, noise, flux, single_dish)
    data = _Exact(operator, noise)
    zero = np.zeros((operator.field.size, operator.field.size))
    if start is None:
        half, gradient = data.at(zero)
        regulariser = (
            regularisation
            if isinstance(regularisation, Regulariser)
            else make_regulariser(regularisation, minor.transfer, gradient)
        )
        x, z = zero, regulariser.start(gradient)
        first = float(np.abs(gradient).max()) * noise / np.sqrt(operator.weight_sum) / STEP
    else:
        regulariser, z = start.regulariser, start.variables
        first = strength or regulariser.strongest
        x = regulariser.image(z)
        half, gradient = data.at(x)
    found = read_state(checkpoint, z.size)
    state = found or MapState(z, z, np.inf, [], strength)
    if found is not None:
        log.info("going on after cycle %d of %s", len(state.history), checkpoint)
        state.z = state.z.reshape(z.shape)
        x = regulariser.image(state.z)
        half, gradient = data.at(x)
    with bar("fitting an image", "cycles", total=n_cycle, show=show) as shown:
        while len(state.history) < n_cycle and not state.is_done:
            minor.at(x, half, gradient)
            if state.history:
                state.z = minor.minimise(regulariser, state.z, float(state.strength or 0.0), N_ITERATION)
            else:
                state.z, state.strength = _falling(minor, regulariser, state.z, data.n, first, strength)
            x = regulariser.image(state.z)
            half, gradient = data.at(x)
            _judge(state, half, data.n)
            shown.set_postfix_str(f"chi2/2N {half / data.n:.4g}", refresh=False)
            shown.update(1)
            if checkpoint is not None:
                state.write(checkpoint)
    best = state.best_z.reshape(z.shape)
    reached = state.best <= (1.0 + NEAR) * data.n + 3.0 * np.sqrt(data.n)
    return SmoothMap(
        regulariser.image(best),
        tuple(state.history),
        float(state.strength or 0.0),
        bool(reached),
        best,
        regulariser,
    )


def _judge(state: MapState, half: float, n: int) -> None:
    """Add a cycle with its chi2/2 to the state, and judge whether it was the last."""
    state.history.append(2.0 * half)
    log.info("cycle %d: chi2/2N %.5g, strength %.4g", len(state.history), half / n, state.strength)
    fell = state.best - half
    if fell > 0.0:
        state.best, state.best_z = half, state.z
    state.is_done = fell < max(ENOUGH * np.sqrt(n), LITTLE * half)


def _transfer(psf: Array) -> Array:
    """The transform of a PSF, whose imaginary part only w-terms make."""
    return np.asarray(rfft2(np.fft.ifftshift(psf)).real)


class _Exact:
    """The exact chi2/2 of the data of an operator, and minus its derivatives."""

    def __init__(self, operator: ImageOperator, noise: float) -> None:
        self._operator, self._noise = operator, noise
        self.n = max(1, sum(operator.n_data))

    def at(self, x: Array) -> tuple[float, Array]:
        """chi2/2 of an image, and R^T W (d - R x)."""
        residuals = self._operator.residuals(self._operator.predict(x[None]))
        pairs = zip(self._operator.weights, residuals, strict=True)
        half = 0.5 * sum(float((weight * np.abs(vis) ** 2).sum()) for weight, vis in pairs)
        gradient = self._operator.adjoint(residuals, weighted=True)[0]
        return half / self._noise**2, gradient / self._noise**2


def _falling(
    minor: _Minor, regulariser: Regulariser, z: Array, n: int, first: float, strength: float | None
) -> tuple[Array, float]:
    """Variables at a given strength, or by the rule of `smooth_map`; each from those of a larger strength."""
    least = regulariser.strongest if strength is None else strength
    steps = max(0, int(np.ceil(np.log(max(first / least, 1.0)) / np.log(STEP))))
    for falling in np.geomspace(first, least, steps + 1)[:-1]:
        z = minor.minimise(regulariser, z, float(falling), N_FIRST)
    if strength is not None:
        return minor.minimise(regulariser, z, strength, N_ITERATION), strength
    before: tuple[Array, float, float] | None = None
    n_strength = max(N_STRENGTH, int(2.0 * np.log10(regulariser.strongest / regulariser.weakest)))
    for falling in np.geomspace(regulariser.strongest, regulariser.weakest, n_strength):
        z = minor.minimise(regulariser, z, float(falling), N_FIRST)
        half = minor.half_chi2(regulariser.image(z))[0]
        if half <= n:
            if before is None:
                return z, float(falling)
            return _between(minor, regulariser, before, (z, float(falling), half), float(n))
        before = z, float(falling), half
    return z, regulariser.weakest


def _between(
    minor: _Minor,
    regulariser: Regulariser,
    strong: tuple[Array, float, float],
    weak: tuple[Array, float, float],
    target: float,
) -> tuple[Array, float]:
    """Variables and strength where chi2/2 is the target, by interpolation between two strengths."""
    for _ in range(3):
        share = (np.log(strong[2]) - np.log(target)) / max(np.log(strong[2]) - np.log(weak[2]), 1e-12)
        strength = float(np.exp(np.log(strong[1]) + np.clip(share, 0.1, 0.9) * np.log(weak[1] / strong[1])))
        z = minor.minimise(regulariser, weak[0], strength, N_FIRST)
        half = minor.half_chi2(regulariser.image(z))[0]
        found = z, strength, half
        if abs(half - target) < 0.002 * target:
            return z, strength
        strong, weak = (found, weak) if half > target else (strong, found)
    return weak[0], weak[1]
