"""Pictures of data against a model: amplitude and phase by uv distance, and residuals in sigma."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats
from scipy.constants import c

from biro.errors import InputError
from biro.observation.partition import Partition

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

PARALLEL = ("XX", "YY", "RR", "LL", "I")
_UV_UNITS = ((1e9, "Gλ"), (1e6, "Mλ"), (1e3, "kλ"), (1.0, "λ"))
_EDGES = np.linspace(-6.0, 6.0, 61)


def uv(likelihood: Likelihood, theta: NDArray[np.float64], n_bin: int = 40) -> Figure:
    """Draw the amplitude of data and model, and the phase between them, in bins of uv distance.

    Stokes I (weighted mean of the parallel hands); one colour for each partition. In a bin, with
    weights w of the data D, model M and noise factor s:

        amplitude^2 = (sum w |D|^2 - 2 s^2 n) / sum w       noise power subtracted
        phase       = arg sum w D M*,  its error s / sqrt(sum w |M|^2)

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
        Parameters of the model, such as `posterior.best_fit`.
    n_bin : int
        Number of bins of uv distance.

    Raises
    ------
    InputError
        No partition has a parallel hand.
    """
    groups = list(_stokes_i(likelihood, theta))
    if not groups:
        raise InputError(f"no parallel hands ({', '.join(PARALLEL)}) in the data, so no Stokes I to show")
    reach = max(group.distance.max() for group in groups)
    unit, unit_name = next(item for item in _UV_UNITS if reach >= item[0] or item[0] == 1.0)
    edges = np.linspace(0.0, reach * (1 + 1e-9), n_bin + 1)
    figure = Figure(figsize=(8.6, 6.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for i, group in enumerate(groups):
        bins = group.binned(edges)
        x, colour = bins.distance / unit, f"C{i % 10}"
        style = {"color": colour, "ms": 3.5, "lw": 0, "elinewidth": 0.8}
        upper.errorbar(x, bins.amplitude, bins.amplitude_err, fmt="o", label=group.label, **style)
        upper.plot(x, bins.model, color=colour, marker="_", ms=9, mew=1.6, ls="-", lw=0.6, alpha=0.8)
        lower.errorbar(x, bins.phase, bins.phase_err, fmt="o", **style)
    upper.set_ylabel("Stokes I amplitude [Jy]")
    if upper.get_ylim()[0] < 0.6 * upper.get_ylim()[1]:
        upper.set_ylim(bottom=0.0)
    upper.plot([], [], color="0.3", marker="_", ms=9, mew=1.6, lw=0.6, label="model")
    upper.legend(fontsize=8, ncols=1 + len(groups) // 9)
    lower.axhline(0.0, color="0.3", lw=0.8)
    lower.set_ylabel("phase, data − model [deg]")
    lower.set_xlabel(f"uv distance [{unit_name}]")
    for ax in (upper, lower):
        ax.grid(alpha=0.25, lw=0.5)
    return figure


def residuals(likelihood: Likelihood, theta: NDArray[np.float64]) -> Figure:
    """Draw real and imaginary residuals in units of the fitted sigma, and the density that the model assumes.

    That is the unit Gaussian, or Student's t of unit scale with the degrees of freedom at theta. The two
    end bins hold all values beyond them.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
    """
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    ax = figure.subplots()
    factors = np.atleast_1d(likelihood.noise_factor(theta))
    for i, (part, model) in enumerate(
        zip(likelihood.observation.partitions, likelihood.predict(theta), strict=True)
    ):
        used = part.weight > 0
        scaled = (part.vis - model)[used] * np.sqrt(part.weight[used].astype(np.float64)) / factors[i]
        values = np.concatenate([scaled.real, scaled.imag])
        density = (
            np.histogram(np.clip(values, _EDGES[0], _EDGES[-1]), _EDGES)[0] / values.size / np.diff(_EDGES)
        )
        rms = np.sqrt(np.mean(values**2))
        label = f"{likelihood.observation.labels[i]}: rms {rms:.3f}, noise factor {factors[i]:.4g}"
        ax.stairs(density, _EDGES, color=f"C{i % 10}", lw=1.2, label=label)
    grid = np.linspace(-6.0, 6.0, 400)
    for label, density in _noise_densities(likelihood.noise_dof(theta), grid).items():
        ax.plot(grid, density, color="0.15", lw=1.0, ls="--", label=label)
    ax.set_yscale("log")
    ax.set_ylim(1e-6, 1.5)
    ax.set_xlim(-6.0, 6.0)
    ax.set_xlabel("(data − model) / (noise factor × sigma)")
    ax.set_ylabel("probability density")
    ax.legend(fontsize=7.5, loc="lower center", ncols=1 + len(factors) // 5)
    ax.grid(alpha=0.25, lw=0.5)
    return figure


def _noise_densities(
    dof: NDArray[np.float64] | None, grid: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Densities of the real part of the noise on a grid, by label."""
    if dof is None:
        return {"unit Gaussian": stats.norm.pdf(grid)}
    return {
        f"Student's t, {value:.3g} degrees of freedom": stats.t.pdf(grid, value) for value in np.unique(dof)
    }


@dataclass(frozen=True)
class _Bins:
    """Means over bins of uv distance: distance in wavelengths, amplitudes in Jy, phases in deg."""

    distance: NDArray[np.float64]
    amplitude: NDArray[np.float64]
    amplitude_err: NDArray[np.float64]
    model: NDArray[np.float64]
    phase: NDArray[np.float64]
    phase_err: NDArray[np.float64]


@dataclass(frozen=True)
class _StokesI:
    """Usable samples of one partition, flat: uv distance in wavelengths, data, model, weight."""

    label: str
    distance: NDArray[np.float64]
    data: NDArray[np.complex128]
    model: NDArray[np.complex128]
    weight: NDArray[np.float64]
    factor: float

    def binned(self, edges: NDArray[np.float64]) -> _Bins:
        """Weighted means over bins of uv distance with these edges; empty bins are left out."""
        index = np.digitize(self.distance, edges) - 1
        n_bin = len(edges) - 1

        def total(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.bincount(index, values, minlength=n_bin).astype(np.float64)

        w, s2 = self.weight, self.factor**2
        count, sum_w = total(np.ones_like(w)), total(w)
        keep = count > 0
        sum_w = np.where(keep, sum_w, 1.0)
        model_power = total(w * np.abs(self.model) ** 2)
        power = np.maximum(total(w * np.abs(self.data) ** 2) - 2 * s2 * count, 0.0) / sum_w
        power_err = np.sqrt(4 * s2 * model_power + 4 * s2**2 * count) / sum_w
        # Where the signal is below the noise, the error of the amplitude is the root of the power's error.
        amplitude = np.sqrt(power)
        amplitude_err = power_err / np.maximum(2 * amplitude, np.sqrt(power_err) + 1e-300)
        cross = w * self.data * np.conj(self.model)
        phase = np.degrees(np.arctan2(total(cross.imag), total(cross.real)))
        phase_err = np.degrees(np.minimum(np.sqrt(s2 / np.maximum(model_power, 1e-300)), np.pi))
        columns = (total(w * self.distance) / sum_w, amplitude, amplitude_err, np.sqrt(model_power / sum_w))
        return _Bins(*(column[keep] for column in (*columns, phase, phase_err)))


def _stokes_i(likelihood: Likelihood, theta: NDArray[np.float64]) -> Iterator[_StokesI]:
    """Stokes I of the data and of the model at theta, of each partition that has a parallel hand."""
    models = likelihood.predict(theta)
    factors = np.atleast_1d(likelihood.noise_factor(theta))
    for i, (part, model) in enumerate(zip(likelihood.observation.partitions, models, strict=True)):
        hands = [k for k, corr in enumerate(part.corr_type) if corr in PARALLEL]
        weight = part.weight[:, :, hands].astype(np.float64)
        total = weight.sum(axis=2)
        used = total > 0
        if not used.any():
            continue
        data, fitted = (
            (weight * values[:, :, hands]).sum(axis=2)[used] / total[used] for values in (part.vis, model)
        )
        distance = _distance(part)[used]
        yield _StokesI(
            likelihood.observation.labels[i], distance, data, fitted, total[used], float(factors[i])
        )


def _distance(part: Partition) -> NDArray[np.float64]:
    """uv distance in wavelengths, (n_row, n_chan)."""
    return np.hypot(part.uvw[:, 0], part.uvw[:, 1])[:, None] * part.chan_freq / c
