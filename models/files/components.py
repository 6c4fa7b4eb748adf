"""What text component lists have in common: fixed sources as plain numbers, to and from a `SkyModel`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from biro.models.bound.positions.bearing import bearing
from biro.models.bound.si_values import SIValues, fold_constants
from biro.models.bound.slots import ModelSlots, ResolvedSlots
from biro.models.bound.source_arrays import brightness, shapes, spectral_terms
from biro.models.bound.source_layout import SourceLayout
from biro.models.components.direction import Centre, lm_to_radec, radec_to_lm
from biro.models.components.source import LOCAL, PHASE_CENTRE, GaussianSource, PointSource
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed
from biro.models.quantities.strict import short_repr
from biro.models.sky import SkyModel
from rime_kernels.physics.form_codes import POWER_LAW

_NORTH = {LOCAL: "source", PHASE_CENTRE: "phase centre"}
_NUMBER = re.compile(r"[+-]?(\d{1,60}\.?\d{0,60}|\.\d{1,60})([eE][+-]?\d{1,4})?\Z")


@dataclass(frozen=True)
class ListComponent:
    """One source of a list.

    Attributes
    ----------
    name : str
    ra, dec : float, rad
    stokes : (float, float, float, float), Jy
    terms : four tuples of float
        Of each Stokes parameter, natural logarithms or, where `log_spectrum` is False, relative polynomial.
    log_spectrum : bool
    ref_freq : float or None, Hz
    shape : (float, float, float) or None
        emaj, emin, pa in rad; None for a point.
    frame : "source" or "phase_centre"
        Whose north pa is from: `GaussianSource.frame`.
    rm : float, rad/m2
        Of Q and U, which are those at `ref_freq` where `rm_at_ref_freq`, at the wavelength 0 otherwise.
    rm_at_ref_freq : bool
    """

    name: str
    ra: float
    dec: float
    stokes: tuple[float, ...]
    terms: tuple[tuple[float, ...], ...] = ((), (), (), ())
    log_spectrum: bool = True
    ref_freq: float | None = None
    shape: tuple[float, float, float] | None = None
    frame: str = LOCAL
    rm: float = 0.0
    rm_at_ref_freq: bool = False

    def in_frame(self, frame: str, centre: Centre | None) -> ListComponent:
        """This component with pa from another north; `centre` is the phase centre, where it is known.

        Raises
        ------
        ModelError
            The position angle cannot be turned, for the phase centre is not known.
        """
        if self.shape is None or self.frame == frame or self.shape[0] == self.shape[1]:
            return replace(self, frame=frame)
        if centre is None:
            raise ModelError(
                f"{self.name}: pa is measured from the north of the {_NORTH[self.frame]}, but this format "
                "measures "
                f"it from that of the {_NORTH[frame]}; give [sky] centre, so that biro can compute the angle "
                f'between them, or frame = "{frame}"'
            )
        emaj, emin, pa = self.shape
        turn = float(bearing(np.array(radec_to_lm(self.ra, self.dec, centre)), centre[1]))
        turned = pa + turn if frame == PHASE_CENTRE else pa - turn
        return replace(self, shape=(emaj, emin, turned), frame=frame)


def parse_float(text: str) -> float:
    """A finite float from a text.

    Raises
    ------
    ModelError
        It is none.
    """
    value = float(text) if _NUMBER.match(text) else math.nan
    if not math.isfinite(value):
        raise ModelError(f"expected a finite number, found {short_repr(text)}")
    return value


def within_turn(ra: float) -> float:
    """A right ascension, rad, which is refused where it is more than a turn."""
    if not abs(ra) <= 2 * math.pi * (1 + 1e-12):
        raise ModelError(f"ra: must lie within 0 .. 24 h, found {math.degrees(ra) / 15:g} h")
    return ra


def as_ellipse(first: float, second: float, pa: float) -> tuple[float, float, float] | None:
    """emaj >= emin and pa, rad, of axes in either order; None where both are 0."""
    if first < 0 or second < 0:
        raise ModelError(f"axes must not be negative, found {first:g} and {second:g} rad")
    if first == second == 0:
        return None
    return (first, second, pa) if first >= second else (second, first, pa + math.pi / 2)


def to_model(components: Sequence[ListComponent]) -> SkyModel:
    """A sky model of fixed sources; names are made unique and free of characters that names cannot have."""
    if not components:
        raise ModelError("no sources in the list")
    names = _unique_names([component.name for component in components])
    return SkyModel([_source(name, component) for name, component in zip(names, components, strict=True)])


def _unique_names(names: Sequence[str]) -> Iterator[str]:
    taken: set[str] = set()
    copies: dict[str, int] = {}  # where to go on, or many of one name would take for ever
    for number, name in enumerate(names, start=1):
        base = re.sub(r"[^A-Za-z0-9_.+\-]", "_", name)[:50].lstrip(".+-") or f"s{number}"
        if base in ("noise", "beam", "pointing"):
            base = f"{base}_"
        unique, copy = base, copies.get(base, 2)
        while unique in taken:
            unique, copy = f"{base}_{copy}", copy + 1
        copies[base] = copy
        taken.add(unique)
        yield unique


def _source(name: str, component: ListComponent) -> PointSource | GaussianSource:
    given: dict[str, object] = {"ra": Fixed(component.ra, "rad"), "dec": Fixed(component.dec, "rad")}
    for key, value in zip("IQUV", component.stokes, strict=True):
        if value != 0 or key == "I":
            given[key] = Fixed(value, "Jy")
    if any(component.terms):
        alike = len(set(component.terms)) == 1 or not any(component.stokes[1:])
        series = [tuple(Fixed(term) for term in terms) or (Fixed(0.0),) for terms in component.terms]
        key = "spectral_index" if component.log_spectrum else "polynomial"
        given[key] = series[0] if alike else dict(zip("IQUV", series, strict=True))
    if component.ref_freq is not None:
        given["ref_freq"] = Fixed(component.ref_freq, "Hz")
    if component.rm and any(component.stokes[1:3]):
        given["rm"] = Fixed(component.rm, "rad/m2")
        given["rm_reference"] = "ref_freq" if component.rm_at_ref_freq else "zero"
    if component.shape is None:
        return PointSource(name, **given)
    shape = {
        key: Fixed(value, "rad") for key, value in zip(("emaj", "emin", "pa"), component.shape, strict=True)
    }
    return GaussianSource(name, **given, **shape, frame=component.frame)


def from_model(model: SkyModel) -> list[ListComponent]:
    """The sources of a model without priors as plain numbers, points first.

    Raises
    ------
    ModelError
        A source has a prior, varies in time, or is an offset from a centre that the model does not state;
        or the model has images.
    """
    for source in model.sources:
        if not isinstance(source, (PointSource, GaussianSource)):
            raise ModelError(
                f"source {source.name!r} is of type {source.type!r}; a component list holds points and "
                "Gaussians only, write a model file"
            )
        if not source.beam:
            raise ModelError(
                f"source {source.name!r}: a component list cannot store beam = false; write a model file"
            )
    slots = ModelSlots()
    layout = SourceLayout(model, slots)
    resolved = slots.resolve()
    if resolved.parameters:
        raise ModelError(
            f"{resolved.parameters[0].name} has a prior, but a component list holds numbers only; fit the "
            "model and convert the run directory, or write a model file (.toml)"
        )
    if model.populations:
        raise ModelError(
            f"population {model.populations[0].name!r}: a component list holds known sources only, "
            "write a model file"
        )
    if model.images:
        raise ModelError(
            f"image {model.images[0].name!r}: a component list holds points and Gaussians only, "
            "write a model file"
        )
    if layout.spectral_form is not None:
        name = layout.names[int(np.argmax(layout.spectral_form > POWER_LAW))]
        raise ModelError(
            f"{name}: a component list has polynomial spectra only, not absorption, lines or tables; "
            "write a model file"
        )
    if layout.turned.any():
        name = layout.names[int(np.argmax(layout.turned))]
        raise ModelError(
            f"{name}: has a rotation measure, which is not written to component lists; write a model file"
        )
    if layout.n_time > 1 or layout.curves:
        raise ModelError("brightness varies in time, which a component list cannot store; write a model file")
    if layout.moving.size:
        name = layout.names[layout.moving[0]]
        raise ModelError(f"{name}: moves, which a component list cannot store; write a model file")
    if layout.by_offset.any() and model.centre is None:
        raise ModelError("positions are offsets, but the model states no centre; give [sky] centre")
    return list(_evaluate(model, layout, resolved))


def _evaluate(model: SkyModel, layout: SourceLayout, resolved: ResolvedSlots) -> Iterator[ListComponent]:
    position = resolved.base[layout.position]
    stokes, terms, shape = (
        fold_constants(resolved, SIValues(resolved), partial(make, layout))(np.zeros((1, 0)))[0]
        for make in (brightness, spectral_terms, shapes)
    )
    stokes = stokes[0]
    ellipses = [(float(emaj), float(emin), float(pa)) for emaj, emin, pa in shape]
    n_point = len(layout.names) - len(ellipses)
    shape_of = [*[None] * n_point, *ellipses]
    local = [*[True] * n_point, *(layout.is_local | ~layout.has_angle)]
    for i, name in enumerate(layout.names):
        ra, dec = position[i]
        if layout.by_offset[i]:
            ra, dec = lm_to_radec(ra, dec, model.centre)
        yield ListComponent(
            name=name,
            ra=float(ra),
            dec=float(dec),
            stokes=tuple(float(s) for s in stokes[i]),
            terms=tuple(_trimmed(row) for row in terms[i]),
            log_spectrum=bool(layout.log_spectrum[i]),
            ref_freq=float(layout.ref_freq[i]) if terms[i].any() else None,
            shape=shape_of[i],
            frame=LOCAL if local[i] else PHASE_CENTRE,
        )


def _trimmed(terms: np.ndarray) -> tuple[float, ...]:
    used = np.flatnonzero(terms)
    return tuple(float(term) for term in terms[: used[-1] + 1]) if used.size else ()


def sexagesimal(angle: float, per_unit: float, separators: tuple[str, str], signed: bool) -> str:
    """An angle in rad as whole units, minutes and seconds with 12 decimals.

    Parameters
    ----------
    angle : float, rad
    per_unit : float
        Degrees per unit: 15 for hours.
    separators : (str, str)
    signed : bool
        Whether to write a plus sign.
    """
    ticks = round(abs(math.degrees(angle)) / per_unit * 3600 * 10**12)
    seconds, fraction = divmod(ticks, 10**12)
    minutes, seconds = divmod(seconds, 60)
    whole, minutes = divmod(minutes, 60)
    sign = "-" if angle < 0 else "+" if signed else ""
    first, second = separators
    return f"{sign}{whole:02d}{first}{minutes:02d}{second}{seconds:02d}.{fraction:012d}"
