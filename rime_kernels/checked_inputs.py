"""Check the arguments of a `Rime`: data, weights, templates, form, residuals, degrees of freedom."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rime_kernels import check
from rime_kernels.arrays import Rows, Sources
from rime_kernels.choices import Precision
from rime_kernels.errors import InputError
from rime_kernels.geometry import AntennaGeometry, Form, choose_form
from rime_kernels.smearing.average import Average


def scaled_dof_of(sources: Sources, scaled_dof: ArrayLike | None) -> NDArray[np.float64] | None:
    """nu s^2 of Student's t for each entry of the batch, NaN where it is not finite and above 0."""
    if scaled_dof is None:
        return None
    t = check.array("scaled_dof", scaled_dof, np.float64, ("batch",), {"batch": sources.n_batch})
    return np.where((t > 0.0) & (t < np.inf), t, np.nan)


def validate_sources(sources: Sources) -> None:
    """Refuse values that no sky has (`Sources.invalid`)."""
    invalid = np.flatnonzero(sources.invalid())
    if invalid.size:
        largest = float(np.sum(sources.lm**2, axis=-1).max())
        raise InputError(
            f"batch entry {invalid[0]} has impossible values: l^2 + m^2 must be at most 1 (largest: "
            f"{largest:g}), FWHM axes and the scale of the beam at least 0"
        )


def residual_of(rows: Rows, sources: Sources, residual: ArrayLike) -> NDArray[np.complex128]:
    """A residual of each sample for each entry of the batch."""
    sizes = {"batch": sources.n_batch, "row": rows.n_row, "chan": rows.n_chan, "corr": rows.n_corr}
    return check.array("residual", residual, np.complex128, ("batch", "row", "chan", "corr"), sizes)


def form_of(
    rows: Rows,
    geometry: AntennaGeometry,
    form: str,
    extent: float,
    precision: Precision,
    average: Average | None,
) -> tuple[Form, str]:
    """The form of the phase, and why it was chosen; `average` is that of visibilities that are smeared."""
    check.one_of("form", form, ("auto", "factored", "row"))
    if not extent >= 0.0:
        raise InputError(f"extent must be a number of at least 0 (largest |l|, |m|), got {extent}")
    chosen, reason = choose_form(geometry, float(rows.chan_freq.max()), extent, precision)
    if form not in ("auto", chosen):
        forced: Form = "row" if form == "row" else "factored"
        chosen, reason = forced, f"{forced} form: as asked (by itself: {reason})"
    if average is None:
        return chosen, reason
    if chosen == "row" or average.slot_interval is not None:
        return chosen, f"{reason}; {average}"
    unequal = "rows of one time slot have different intervals"
    if form == "factored":
        raise InputError(f'{unequal}, which form="factored" cannot have; give form="row"')
    return "row", f"row form: {unequal}; {average}"


def data_of(
    rows: Rows, vis: ArrayLike | None, weight: ArrayLike | None
) -> tuple[NDArray[np.complexfloating], NDArray[np.float64]] | None:
    """Data and weights; data are 0 where the weight is 0."""
    if vis is None:
        if weight is not None:
            raise InputError("weight was given without vis")
        return None
    sizes = {"row": rows.n_row, "chan": rows.n_chan, "corr": rows.n_corr}
    data = check.array("vis", vis, _complex_type(vis), ("row", "chan", "corr"), sizes)
    if weight is None:
        return data, np.zeros((1, 1, 1))
    weights = check.array("weight", weight, np.float64, ("row", "chan", "corr"), sizes)
    check.finite("weight", weights)
    if weights.min() < 0.0:
        raise InputError(f"weight must be at least 0 (0 for what does not count), got {weights.min():g}")
    data = np.where(weights > 0.0, data, data.dtype.type(0))
    check.finite("vis, where the weight is above 0,", data)
    return data, weights


def templates_of(
    rows: Rows, template: ArrayLike | None, lm: ArrayLike | None
) -> tuple[NDArray[np.complexfloating], NDArray[np.float64]]:
    """Templates and the directions of their centres; empty arrays where there are no templates."""
    sizes = {"row": rows.n_row, "chan": rows.n_chan, "corr": rows.n_corr}
    if template is None:
        if lm is not None:
            raise InputError("template_lm was given without template")
        return np.zeros((0, *sizes.values()), np.complex64), np.zeros((0, 2))
    axes = "template", "row", "chan", "corr"
    checked = check.array("template", template, _complex_type(template), axes, sizes)
    check.finite("template", checked)
    n_template = len(checked)
    centres = np.zeros((n_template, 2)) if lm is None else lm
    centres = check.array("template_lm", centres, np.float64, ("template", 2), {"template": n_template})
    if not np.all(np.sum(centres**2, axis=1) < 1.0):
        raise InputError("template_lm must be direction cosines with l^2 + m^2 below 1")
    return checked, centres


def _complex_type(vis: ArrayLike) -> type[np.complexfloating]:
    return np.complex64 if getattr(vis, "dtype", None) == np.complex64 else np.complex128
