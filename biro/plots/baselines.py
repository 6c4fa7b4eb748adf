"""Data and model against time: amplitude and phase of baselines, and closures of three and four antennas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator
from numpy.typing import NDArray

from biro.display.arguments import takes_likelihood
from biro.display.formatting import given_text
from biro.display.style import MODEL, WIDTH, colour, drawing_on, figure_of, new_figure
from biro.errors import InputError
from biro.observation.selection import to_utc
from biro.plots.stokes_i import stokes_i
from biro.plots.time_axis import TimeAxis
from biro.plots.time_series import (
    TimeCurve,
    TimeCurves,
    baseline_curves,
    quadrangle_curves,
    triangle_curves,
)

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood
    from biro.observation.observation import Observation

MOST_PANELS = 12
"""Baselines, or triangles, of one picture that are chosen by how badly the model fits."""
_PHASE_STEPS = (1.0, 2.0, 5.0, 10.0, 20.0, 45.0, 90.0, 180.0)
"""Ends of an axis of phases, degrees."""
_PHASE_ROOM = 1.08
_SHORT = 4
"""Points of a scan below which a line could not be seen."""

_NARROW = 0.03
"""Length of such a scan, of the whole axis."""

Array = NDArray[np.float64]


@takes_likelihood
def baselines(
    likelihood: Likelihood,
    theta: Array,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> Figure:
    """Draw amplitude and phase of data and model on single baselines, against time.

    Stokes I, averaged over all channels and windows of a field, data and model alike, and over so much time
    that there are up to 60 points. Lines of the model end where there are gaps in time; none goes from one
    field to another. Amplitudes are of the averages, with the noise that is left in them.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
    pairs : sequence of (str, str), optional
        Names of the antennas; by default the 12 baselines with the largest reduced chi-squared.

    Raises
    ------
    InputError
        No Stokes I, or no such antenna or baseline.
    """
    observation = likelihood.observation
    wanted = None if pairs is None else [_numbers(observation, pair) for pair in pairs]
    found = baseline_curves(stokes_i(likelihood, theta), wanted, MOST_PANELS)
    if not found:
        raise InputError("none of these baselines has usable visibilities")
    n_row, n_column = _grid(len(found))
    start, times = _time_axis(found)
    with new_figure((max(WIDTH, 2.4 * n_column), 0.5 + 2.3 * n_row)) as figure:
        grid = figure.subplots(2 * n_row, n_column, sharex=True, squeeze=False, height_ratios=[3, 2] * n_row)
        for ax in grid.ravel():
            ax.tick_params(labelsize=7)
        for i, one in enumerate(found):
            row, column = divmod(i, n_column)
            upper, lower = grid[2 * row, column], grid[2 * row + 1, column]
            _title(upper, observation, one, "χ²/2N")
            for k, curve in enumerate(one.curves):
                _draw_amplitude(upper, curve, times.of(_hours(curve, start)), colour(k))
                _draw_phase(lower, curve, times.of(_hours(curve, start)), colour(k))
            upper.yaxis.set_major_locator(MaxNLocator(4))
            if column == 0:
                upper.set_ylabel("amplitude\n[Jy]")
                lower.set_ylabel("phase\n[deg]")
        _switch_off(grid, len(found), n_column, panel_rows=2)
        times.finish(figure.axes)
        figure.supxlabel(_time_label(observation, start) + times.remark, fontsize=8)
        _legend(figure, max((one.fields for one in found), key=len))
        return figure


@takes_likelihood
def closure_phases(
    likelihood: Likelihood,
    theta: Array,
    triangles: Sequence[tuple[str, str, str]] | None = None,
) -> Figure:
    """Draw closure phases of data and model against time: they do not depend on the phases of antennas.

        phi_abc = arg <V_ab V_bc V_ca>,     V_ca = V_ac*

    of Stokes I, the product averaged over all channels and windows of a field, and over so much time that
    there are up to 60 points; alike for data and model. Of a point source it is zero.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
    triangles : sequence of (str, str, str), optional
        Names of the antennas; by default the 12 triangles that the model fits worst.

    Raises
    ------
    InputError
        No Stokes I, no such antenna, or no three antennas that were correlated with each other.
    """
    wanted = None if triangles is None else [_numbers(likelihood.observation, names) for names in triangles]
    found = triangle_curves(stokes_i(likelihood, theta), wanted, MOST_PANELS)
    if not found:
        raise InputError("no closure phases: no such three antennas were correlated with each other")
    return _closures(likelihood.observation, found, _draw_phase, "closure\nphase [deg]")


@takes_likelihood
def closure_amplitudes(
    likelihood: Likelihood,
    theta: Array,
    quadrangles: Sequence[tuple[str, str, str, str]] | None = None,
) -> Figure:
    """Draw log closure amplitudes of data and model against time: they do not depend on gains of antennas.

        lca_abcd = ln |V_ab| + ln |V_cd| - ln |V_ad| - ln |V_bc|

    of Stokes I, averaged over all channels and windows of a field, and over so much time that there are up to
    60 points; alike for data and model. Samples with a side below 3 sigma are left out. Of a point source it
    is zero.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
    quadrangles : sequence of (str, str, str, str), optional
        Names of the antennas a, b, c, d; by default the 12 that the model fits worst.

    Raises
    ------
    InputError
        No Stokes I, no such antenna, or no four antennas whose four sides were seen above the noise.
    """
    wanted = (
        None if quadrangles is None else [_numbers(likelihood.observation, names) for names in quadrangles]
    )
    found = quadrangle_curves(stokes_i(likelihood, theta), wanted, MOST_PANELS)
    if not found:
        raise InputError(
            "no closure amplitudes: no such four antennas have four sides above 3 sigma at a time"
        )
    return _closures(likelihood.observation, found, _draw_log_amplitude, "ln(closure\namplitude)")


def _closures(
    observation: Observation,
    found: Sequence[TimeCurves],
    draw: Callable[[Axes, TimeCurve, Array, str], None],
    unit: str,
) -> Figure:
    """One panel for each triangle or quadrangle."""
    n_row, n_column = _grid(len(found))
    start, times = _time_axis(found)
    with new_figure((max(WIDTH, 2.4 * n_column), 0.5 + 1.6 * n_row)) as figure:
        grid = figure.subplots(n_row, n_column, sharex=True, squeeze=False)
        for ax, one in zip(grid.ravel(), found, strict=False):
            _title(ax, observation, one, "χ²/N")
            ax.tick_params(labelsize=7)
            for k, curve in enumerate(one.curves):
                draw(ax, curve, times.of(_hours(curve, start)), colour(k))
        for ax in grid[:, 0]:
            ax.set_ylabel(unit)
        _switch_off(grid, len(found), n_column)
        times.finish(figure.axes)
        figure.supxlabel(_time_label(observation, start) + times.remark, fontsize=8)
        _legend(figure, max((one.fields for one in found), key=len))
        return figure


@takes_likelihood
def baseline(
    likelihood: Likelihood,
    theta: Array,
    antennas: tuple[str, str],
    quantity: str = "amplitude",
    *,
    ax: Axes | None = None,
) -> Figure:
    """Draw the amplitude, or the phase, of data and model on one baseline, as `baselines` has them.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
    antennas : (str, str)
        Names.
    quantity : "amplitude" or "phase"
    ax : Axes, optional
        By default those of a new figure.

    Raises
    ------
    InputError
        As `baselines`, or another quantity.
    """
    drawers = {"amplitude": (_draw_amplitude, "Jy"), "phase": (_draw_phase, "deg")}
    if quantity not in drawers:
        raise InputError(f"quantity must be amplitude or phase, got {quantity!r}")
    draw, unit = drawers[quantity]
    observation = likelihood.observation
    found = baseline_curves(stokes_i(likelihood, theta), [_numbers(observation, antennas)], 1)
    if not found:
        raise InputError(f"the baseline {'–'.join(antennas)} has no usable visibilities")
    start, times = _time_axis(found)
    with drawing_on(ax, (0.5 * WIDTH, 2.6)) as drawn:
        for k, curve in enumerate(found[0].curves):
            draw(drawn, curve, times.of(_hours(curve, start)), colour(k))
        drawn.set_ylabel(f"{quantity} of {'–'.join(antennas)} [{unit}]")
        times.finish([drawn])
        drawn.set_xlabel(_time_label(observation, start) + times.remark)
        return figure_of(drawn)


def _title(ax: Axes, observation: Observation, one: TimeCurves, what: str) -> None:
    """Antennas and how well the model fits; a prefix that all antennas have ("VLA:") is left out."""
    names = observation.antenna_names
    prefix = {name.partition(":")[0] for name in names if ":" in name}
    common = f"{prefix.pop()}:" if len(prefix) == 1 and all(":" in name for name in names) else ""
    antennas = "–".join(names[number].removeprefix(common) for number in one.antennas)
    text = f"{antennas}   {what} {one.reduced_chi2:.3g}"
    ax.set_title(text, fontsize=8 if len(text) < 32 else 6.5)


def _draw_amplitude(ax: Axes, curve: TimeCurve, x: Array, shade: str) -> None:
    ax.errorbar(x, np.abs(curve.data), curve.sigma, **_dots(shade))
    _draw_model(ax, x, np.abs(curve.model), curve.scan)
    if ax.get_ylim()[0] < 0.5 * ax.get_ylim()[1]:
        ax.set_ylim(bottom=0.0)


def _draw_log_amplitude(ax: Axes, curve: TimeCurve, x: Array, shade: str) -> None:
    ax.errorbar(x, curve.data.real, curve.sigma, **_dots(shade))
    _draw_model(ax, x, np.asarray(curve.model.real, np.float64), curve.scan)
    ax.axhline(0.0, color="0.6", lw=0.6, zorder=0.5)  # that of a point source
    ax.yaxis.set_major_locator(MaxNLocator(4))


def _draw_phase(ax: Axes, curve: TimeCurve, x: Array, shade: str) -> None:
    model = np.degrees(np.angle(curve.model))
    data = np.degrees(np.angle(curve.data))
    before = 0.0 if ax.get_autoscaley_on() else ax.get_ylim()[1] / _PHASE_ROOM
    ax.errorbar(x, data, curve.phase_err, **_dots(shade))
    # A line ends where the phase goes round, too.
    scan = curve.scan + np.cumsum(np.abs(np.diff(model, prepend=model[:1])) > 180.0)
    _draw_model(ax, x, model, scan)
    reach = max(float((np.abs(data) + curve.phase_err).max()), float(np.abs(model).max()), before)
    half = next((step for step in _PHASE_STEPS if step >= reach), 180.0)
    ax.set_ylim(-_PHASE_ROOM * half, _PHASE_ROOM * half)
    ax.yaxis.set_major_locator(FixedLocator([-half, 0.0, half]))


def _legend(figure: Figure, fields: Sequence[str]) -> None:
    """Above the panels: the data, of each field by name where there are several, and the model."""
    names = [f"data, {field}" for field in fields] if len(fields) > 1 else ["data"]
    marks = [Line2D([], [], marker="o", ms=2.5, ls="none", color=colour(k)) for k in range(len(names))]
    marks.append(Line2D([], [], color=MODEL, lw=1.0))
    figure.legend(marks, [*names, "model"], loc="outside upper right", ncols=min(4, len(marks)))


def _dots(shade: str) -> dict[str, Any]:
    return {"color": shade, "fmt": "o", "ms": 2.2, "lw": 0, "elinewidth": 0.6, "alpha": 0.9}


def _draw_model(ax: Axes, x: Array, y: Array, scan: NDArray[np.int64]) -> None:
    """The model as a line that ends with each scan, and as a dash at each point of a short one."""
    _, index, size = np.unique(scan, return_inverse=True, return_counts=True)
    ends = np.flatnonzero(np.diff(index)) + 1  # NaN there, so that nothing is drawn from scan to scan
    ax.plot(np.insert(x, ends, np.nan), np.insert(y, ends, np.nan), color=MODEL, lw=1.0, zorder=3)
    length = np.array([np.ptp(x[index == k]) for k in range(len(size))])
    short = (size[index] < _SHORT) | (length[index] < _NARROW * np.ptp(x))
    ax.plot(x[short], y[short], color=MODEL, ls="none", marker="_", ms=7, mew=1.2, zorder=3)


def _grid(n: int) -> tuple[int, int]:
    n_column = min(n, 4 if n > 6 else 3)
    return math.ceil(n / n_column), n_column


def _switch_off(grid: NDArray[Any], n: int, n_column: int, panel_rows: int = 1) -> None:
    """Hide the panels that are left over, and number the times above them."""
    for i in range(n, len(grid) // panel_rows * n_column):
        row, column = divmod(i, n_column)
        for k in range(panel_rows):
            grid[panel_rows * row + k, column].set_axis_off()
        grid[panel_rows * row - 1, column].tick_params(labelbottom=True)


def _time_axis(found: Sequence[TimeCurves]) -> tuple[float, TimeAxis]:
    """The first time (s) of some curves, and the axis of hours since then."""
    start = min(float(curve.time.min()) for one in found for curve in one.curves)
    return start, TimeAxis(np.concatenate([_hours(curve, start) for one in found for curve in one.curves]))


def _hours(curve: TimeCurve, start: float) -> Array:
    return np.asarray((curve.time - start) / 3600.0)


def _time_label(observation: Observation, start: float) -> str:
    return f"hours since {to_utc(start, observation.utc_offset)[:19].replace('T', ' ')} UTC"


def _numbers(observation: Observation, names: Sequence[str]) -> tuple[int, ...]:
    known = list(observation.antenna_names)
    if not isinstance(names, list | tuple):
        raise InputError(f"expected names of antennas, such as {tuple(known[:2])}, got {given_text(names)}")
    for name in names:
        if name not in known:
            raise InputError(f"no antenna {name!r}; there are {', '.join(known)}")
    return tuple(known.index(name) for name in names)
