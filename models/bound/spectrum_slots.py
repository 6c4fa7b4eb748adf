"""The slots of a source's spectrum and Faraday rotation, and what makes them the kernels' numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from biro.models.bound.slots import ZERO, ModelSlots
from biro.models.components.beam import SPEED_OF_LIGHT
from biro.models.components.source import DIMENSIONS, ROTATION_KEYS, Source, si_value
from biro.models.components.spectrum import INTERPOLATIONS, PROFILES, STOKES, term_scale
from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.parameter import Series
from rime_kernels.physics import form_codes

# A flat spectrum needs no reference frequency, but the kernels need a positive number.
_ANY_FREQ = 1e9


class Term(NamedTuple):
    """A number of the kernels: offset + scale times the value of a slot + that of another one."""

    slot: int = ZERO
    scale: float = 1.0
    offset: float = 0.0
    plus: int = ZERO


class SlotBounds(NamedTuple):
    """What a slot must lie within for the spectrum to have a meaning."""

    slot: int
    low: float
    high: float
    above_low: bool = False


class SpectrumSlots:
    """Slots of the spectrum and the Faraday rotation of one source.

    Parameters
    ----------
    source : Source
    ref_freq : float or None, Hz
        That of the whole sky.
    slots : ModelSlots
        The quantities are added to them.

    Attributes
    ----------
    form : int
        A code of `form_codes`.
    ref_freq : float, Hz
    terms : four lists of Term
        Of each Stokes parameter, as the form has them.
    faraday : list of four Term, or None
        As `Sources.faraday`.
    bounds : list of SlotBounds
    band : (float, float), Hz, or None
        Frequencies at which the spectrum is given.
    frame : str
        Of the velocities of a line, "LSRK", ...; empty where that is the frame of the data.
    """

    def __init__(self, source: Source, ref_freq: float | None, slots: ModelSlots) -> None:
        self._source, self._slots, self.bounds = source, slots, list[SlotBounds]()
        self.band: tuple[float, float] | None = None
        self.frame = "" if source.line is None else str(source.line.get("velocity_frame", ""))
        if source.ref_freq is not None:
            ref_freq = si_value(source.ref_freq, units.FREQUENCY)
        self._ref_freq = ref_freq
        self.ref_freq = ref_freq or _ANY_FREQ
        self.form, self.terms = self._polynomial()
        if source.v_index is not None:
            self._add_v_index()
        for key in ("free_free", "self_absorption", "line", "table"):
            if getattr(source, key) is not None:
                own = getattr(self, f"_{key}")()
                tail = [] if key in ("self_absorption", "table") else self.terms
                self.terms = [own + (tail[k] if tail else []) for k in range(len(STOKES))]
        self.faraday = self._rotation()

    def given_ref_freq(self, what: str) -> float:
        """The reference frequency, Hz, for what has no meaning without one.

        Raises
        ------
        ModelError
            Neither the source nor the sky has one.
        """
        if self._ref_freq is None:
            raise ModelError(
                f"source {self._source.name!r}: {what} needs a ref_freq, here or for the whole sky"
            )
        return self._ref_freq

    def _one(self, key: str, low: float = -math.inf, high: float = math.inf, above_low: bool = False) -> Term:
        """A quantity of the source, which must lie within bounds."""
        slot = self._slots.add(self._source.name, key, getattr(self._source, key), DIMENSIONS[key])
        self.bounds.append(SlotBounds(slot, low, high, above_low))
        return Term(slot)

    def _polynomial(self) -> tuple[int, list[list[Term]]]:
        """The form and terms of a polynomial; none where the spectrum is flat."""
        spectrum, name = self._source.spectrum(), self._source.name
        if spectrum is None:
            return form_codes.POWER_LAW, [[] for _ in STOKES]
        key, given = spectrum
        if self._source.self_absorption is None:
            self.given_ref_freq(key)

        def terms(series: Series, prefix: str = "") -> list[Term]:
            found = self._slots.add_series(name, key, series, units.NUMBER, prefix)
            return [
                Term(slot, float(by)) for slot, by in zip(found, term_scale(key, len(found)), strict=True)
            ]

        form = form_codes.POLYNOMIAL if key == "polynomial" else form_codes.POWER_LAW
        if not isinstance(given, dict):
            return form, [terms(given)] * len(STOKES)
        of = {stokes: terms(series, f".{stokes}") for stokes, series in given.items()}
        return form, [of.get(stokes, of["I"]) for stokes in STOKES]

    def _add_v_index(self) -> None:
        """Add v_index to the spectral index of V: V/I = v (nu/nu0)^v_index."""
        self.given_ref_freq("v_index")
        *others, (first, *rest) = [*self.terms[:3], self.terms[3] or [Term()]]
        slot = self._one("v_index").slot
        self.terms = [*others, [first._replace(plus=slot), *rest]]

    def _free_free(self) -> list[Term]:
        self.form = form_codes.FREE_FREE
        return [self._one("free_free", 0.0), Term(), Term(), Term()]

    def _self_absorption(self) -> list[Term]:
        self.form = form_codes.SELF_ABSORBED
        (thin,) = self.terms[0]
        self.bounds.append(SlotBounds(thin.slot, -math.inf, 0.0))
        thick = Term(offset=2.5)
        if self._source.thick_index is not None:
            thick = self._one("thick_index", 0.0, above_low=True)
        return [self._one("self_absorption", 0.0, above_low=True), thin, thick, Term()]

    def _line(self) -> list[Term]:
        line, name = self._source.line, self._source.name
        self.form = PROFILES[line["profile"]]

        def add(key: str, dimension: units.Dimension, **bounds: float) -> int:
            slot = self._slots.add(name, "line", line[key], dimension, f".{key}")
            if bounds:
                self.bounds.append(SlotBounds(slot, bounds["low"], math.inf, True))
            return slot

        if "velocity" in line:
            rest = si_value(line["rest_freq"], units.FREQUENCY)
            per_velocity = rest / SPEED_OF_LIGHT
            centre = Term(add("velocity", units.VELOCITY), -per_velocity, rest)
            width = Term(add("fwhm", units.VELOCITY, low=0.0), per_velocity)
        else:
            centre = Term(add("freq", units.FREQUENCY, low=0.0))
            width = Term(add("fwhm", units.FREQUENCY, low=0.0))
        if "height" not in line:
            return [centre, width, Term(offset=1.0), Term()]
        return [centre, width, Term(add("height", units.NUMBER)), Term(offset=1.0)]

    def _table(self) -> list[Term]:
        table = self._source.table
        self.form = INTERPOLATIONS[table["interpolation"]]
        freq = [si_value(each, units.FREQUENCY) for each in table["freq"]]
        self.band = freq[0], freq[-1]
        values = self._slots.add_series(self._source.name, "table", table["value"], units.NUMBER, ".value")
        if self.form == form_codes.LOG_TABLE:
            self.bounds += [SlotBounds(slot, 0.0, math.inf, True) for slot in values]
        return [term for nu, slot in zip(freq, values, strict=True) for term in (Term(offset=nu), Term(slot))]

    def _rotation(self) -> list[Term] | None:
        source = self._source
        if all(getattr(source, key) is None for key in ROTATION_KEYS):
            return None
        wave2 = 0.0
        if source.rm_reference == "ref_freq":
            wave2 = (SPEED_OF_LIGHT / self.given_ref_freq("rm_reference")) ** 2
        # Of either sign they are the same: every posterior would be there twice.
        rm = Term() if source.rm is None else self._one("rm")
        width, scatter = (
            Term() if getattr(source, key) is None else self._one(key, 0.0) for key in ROTATION_KEYS[1:]
        )
        return [rm, Term(offset=wave2), width, scatter]


class TermTable(NamedTuple):
    """`Term`s as arrays (n, n_term): int64 slots, float64 factors and offsets."""

    slot: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    plus: np.ndarray


def tables(rows: list[list[Term]]) -> TermTable:
    """The arrays of lists of terms, filled up with zeros."""
    n_term = max(map(len, rows), default=0)
    padded = [[*row, *[Term()] * (n_term - len(row))] for row in rows]
    shape = len(rows), n_term
    columns = (np.array([[term[i] for term in row] for row in padded]).reshape(shape) for i in range(4))
    slot, scale, offset, plus = columns
    return TermTable(
        slot.astype(np.int64), scale.astype(np.float64), offset.astype(np.float64), plus.astype(np.int64)
    )
