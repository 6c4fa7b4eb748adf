"""Pictures of data against a model: amplitude and phase by uv distance, and residuals in sigma."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from biro.display.arguments import takes_likelihood
from biro.display.formatting import frequency_text
from biro.display.style import MODEL, WIDTH, colour, drawing_on, figure_of, new_figure
from biro.plots.stokes_i import StokesI, stokes_i, uv_unit

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

MOST_IN_LEGEND = 8
"""Partitions up to which a legend names each; more have colours by frequency."""
_DASH: dict[str, Any] = {"color": MODEL, "marker": "_", "ms": 8, "mew": 1.2, "ls": "none", "zorder": 3}
"""The model in a bin."""
_EDGES = np.linspace(-6.0, 6.0, 61)


@takes_likelihood
def uv(
    likelihood: Likelihood,
    theta: NDArray[np.float64],
    n_bin: int = 40,
    *,
    axes: Sequence[Axes] | None = None,
) -> Figure:
    """Draw the amplitude of data and model, and the phase between them, in bins of uv distance.

    Stokes I (weighted mean of the parallel hands); one colour for each partition. No lines are drawn between
    bins: between two of them a model may do anything. In a bin, with weights w of the data D, model M and
    noise factor s:

        amplitude^2 = (sum w |D|^2 - 2 t^2 n) / sum w       noise power subtracted
        phase       = arg sum w D M*,  its error s / sqrt(sum w |M|^2), at most 180 degrees

    What is subtracted is the noise that changes from one time to the next, t, where that is less than s:
    where a model does not fit, s holds the sources that it lacks. The errors are of s.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
        Parameters of the model, such as `posterior.best_fit`.
    n_bin : int
        Number of bins of uv distance.
    axes : two Axes, optional
        For the amplitude and for the phase; by default those of a new figure.

    Raises
    ------
    InputError
        No partition has a parallel hand.
    """
    groups = stokes_i(likelihood, theta)
    if len(groups) > MOST_IN_LEGEND:
        groups = sorted(groups, key=lambda group: group.freq)
    reach = max(float(group.distance[group.weight > 0].max()) for group in groups)
    unit, unit_name = uv_unit(reach)
    edges = np.linspace(0.0, reach * (1 + 1e-9), n_bin + 1)
    with ExitStack() as stack:
        if axes is None:
            figure = stack.enter_context(new_figure((WIDTH, 5.2)))
            axes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2)).tolist()
        upper, lower = axes
        for group, shade in zip(groups, _colours(groups), strict=True):
            look = (shade, f"{group.label}, {frequency_text(group.freq)}")
            _draw_bins(upper, lower, _binned(group, edges), unit, look)
        _finish_uv(upper, lower, len(groups))
        lower.set_xlabel(f"uv distance [{unit_name}]")
        lower.set_xlim(0.0, 1.03 * reach / unit)
        return figure_of(upper)


def _draw_bins(upper: Axes, lower: Axes, bins: _Bins, unit: float, look: tuple[Any, str]) -> None:
    x, (shade, label) = bins.distance / unit, look
    style = {"color": shade, "ms": 3.5, "lw": 0, "elinewidth": 0.8, "fmt": "o"}
    upper.errorbar(x, bins.amplitude, bins.amplitude_err, label=label, **style)
    upper.plot(x, bins.model, **_DASH)
    lower.errorbar(x, bins.phase, bins.phase_err, **style)


def _finish_uv(upper: Axes, lower: Axes, n_group: int) -> None:
    """Scales, labels and legend."""
    upper.set_ylabel("Stokes I amplitude [Jy]")
    if upper.get_ylim()[0] < 0.4 * upper.get_ylim()[1]:  # what would be blank is less than half
        upper.set_ylim(bottom=0.0)
    upper.plot([], [], **_DASH, label="model")
    handles, labels = upper.get_legend_handles_labels()
    if n_group > MOST_IN_LEGEND:
        handles = [handles[1], handles[n_group], handles[0]]
        labels = [f"{labels[1]} (lowest)", f"{labels[n_group]} (highest frequency)", labels[0]]
    # Above the axes, where no data are.
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "frameon": False}
    # Three long names side by side are as wide as the axes.
    upper.legend(handles, labels, ncols=min(3, len(labels)), handlelength=1.0, columnspacing=1.0, **place)
    lower.axhline(0.0, color="0.3", lw=0.8, zorder=0.5)
    low, high = lower.get_ylim()
    half = max(abs(low), abs(high))
    lower.set_ylim(max(-half, -190.0), min(half, 190.0))
    lower.set_ylabel("phase, data − model [deg]")


def _colours(groups: Sequence[StokesI]) -> list[Any]:
    """A colour for each partition: of the cycle, or from dark to light where there are many."""
    if len(groups) <= MOST_IN_LEGEND:
        return [colour(i) for i in range(len(groups))]
    return [*colormaps["viridis"](np.linspace(0.0, 0.95, len(groups)))]


@takes_likelihood
def residuals(likelihood: Likelihood, theta: NDArray[np.float64], *, ax: Axes | None = None) -> Figure:
    """Draw real and imaginary residuals in units of the fitted sigma, and the density that the model assumes.

    That is the unit Gaussian, or Student's t of unit scale with the degrees of freedom at theta. The two
    end bins hold all values beyond them.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
    ax : Axes, optional
        By default those of a new figure.
    """
    factors = np.atleast_1d(likelihood.noise_factor(theta))
    models = likelihood.predict(theta)
    with drawing_on(ax, (WIDTH, 4.2)) as drawn:
        for i, (part, model) in enumerate(zip(likelihood.observation.partitions, models, strict=True)):
            used = part.weight > 0
            scaled = (part.vis - model)[used] * (np.sqrt(part.weight[used].astype(np.float64)) / factors[i])
            values = np.concatenate([scaled.real, scaled.imag])
            counts = np.histogram(np.clip(values, _EDGES[0], _EDGES[-1]), _EDGES)[0]
            density = np.where(counts > 0, counts / max(values.size, 1) / np.diff(_EDGES), np.nan)
            rms = np.sqrt(np.mean(values**2)) if values.size else 0.0
            label = f"{likelihood.observation.labels[i]}: rms {rms:.3f}, noise factor {factors[i]:.4g}"
            drawn.stairs(density, _EDGES, color=colour(i), lw=1.2, label=label, baseline=None)
        grid = np.linspace(-6.0, 6.0, 400)
        for label, density in _noise_densities(likelihood.noise_dof(theta), grid).items():
            drawn.plot(grid, density, color="0.15", lw=1.0, ls="--", label=label)
        drawn.set_yscale("log")
        drawn.set_xlim(-6.0, 6.0)
        drawn.set_xlabel("(data − model) / (noise factor × sigma)")
        drawn.set_ylabel("probability density")
        handles, labels = drawn.get_legend_handles_labels()
        if len(factors) > MOST_IN_LEGEND:
            # The first and the last, which bound the colours, by name.
            names = likelihood.observation.labels
            more = f"{len(factors)} windows, {names[0]} to {names[-1]}"
            handles, labels = [handles[0], *handles[len(factors) :]], [more, *labels[len(factors) :]]
        n_line = (len(labels) + 1) // 2 if len(labels) > 4 else len(labels)
        # The least density there is, and room for the legend below it.
        least = min(1.0 / max(part.n_usable, 1) for part in likelihood.observation.partitions)
        drawn.set_ylim(least * 10.0 ** (-0.3 * n_line - 0.2), 1.5)
        drawn.legend(handles, labels, loc="lower center", ncols=1 + (len(labels) > 4), framealpha=1.0)
        return figure_of(drawn)


def _noise_densities(
    dof: NDArray[np.float64] | None, grid: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Densities of the real part of the noise on a grid, by label."""
    if dof is None:
        return {"unit Gaussian": np.exp(-0.5 * grid**2) / np.sqrt(2.0 * np.pi)}
    from scipy import stats  # which takes a third of a second to import

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


def _binned(group: StokesI, edges: NDArray[np.float64]) -> _Bins:
    """Weighted means over bins of uv distance with these edges; empty bins are left out."""
    used = group.weight > 0
    distance, data, model = group.distance[used], group.data[used], group.model[used]
    w = group.weight[used]  # the noise factor is in it: s is 1 below
    index, n_bin = np.digitize(distance, edges) - 1, len(edges) - 1

    def total(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(index, values, minlength=n_bin).astype(np.float64)

    count, sum_w = total(np.ones_like(w)), total(w)
    keep = count > 0
    sum_w = np.where(keep, sum_w, 1.0)
    model_power = total(w * np.abs(model) ** 2)
    power = np.maximum(total(w * np.abs(data) ** 2) - 2 * group.thermal**2 * count, 0.0) / sum_w
    power_err = np.sqrt(4 * np.maximum(model_power, power * sum_w) + 4 * count) / sum_w
    # Where the signal is below the noise, the error of the amplitude is the root of the power's error.
    amplitude = np.sqrt(power)
    amplitude_err = power_err / np.maximum(2 * amplitude, np.sqrt(power_err) + 1e-300)
    cross = w * data * np.conj(model)
    phase = np.degrees(np.arctan2(total(cross.imag), total(cross.real)))
    # No more than 180 degrees, however faint the model is.
    phase_err = np.degrees(1.0 / np.sqrt(np.maximum(model_power, np.pi**-2)))
    columns = (total(w * distance) / sum_w, amplitude, amplitude_err, np.sqrt(model_power / sum_w))
    return _Bins(*(column[keep] for column in (*columns, phase, phase_err)))
