"""`Sources`: a batch of source lists."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rime_kernels import check
from rime_kernels.arrays.antenna_terms import AntennaTerms
from rime_kernels.arrays.beam import Beam
from rime_kernels.deprecation import method_alias
from rime_kernels.errors import InputError
from rime_kernels.jones_beam import JonesBeam
from rime_kernels.physics.form_codes import N_FORM, N_OWN, POWER_LAW

# Parameters of a profile beside maj, min and pa: `physics.profiles.N_PARAMETER`, which needs Numba.
_N_PARAMETER = 8

AXES: dict[str, tuple[type, tuple[int | str, ...]]] = {
    "lm": (np.float64, ("batch", "source", 2)),
    "stokes": (np.float64, ("batch", "time", "source", 4)),
    "ref_freq": (np.float64, ("source",)),
    "spectral_terms": (np.float64, ("batch", "source", 4, "term")),
    "log_spectrum": (np.bool_, ("source",)),
    "shape": (np.float64, ("batch", "shape", 3)),
    "template_scale": (np.float64, ("batch", "template")),
    "template_shift": (np.float64, ("batch", "template", 2)),
    "profile": (np.float64, ("batch", "profile", _N_PARAMETER)),
    "profile_kind": (np.int32, ("profile",)),
    "spectral_form": (np.int32, ("source",)),
    "faraday": (np.float64, ("batch", "source", 4)),
}
"""Type and axes of each array of `Sources`, from which its checks, copies and parts of a batch follow.

A new array that kernels read of each source begins here, with a field of `Sources` and of `Gradient`.
"""


@dataclass(frozen=True, eq=False)
class Sources:
    """A batch of source lists: points first, then Gaussians, then profiles, which have any other shape.

    Shapes and types are checked here, values are not: one bad entry of a batch must not stop the others.
    `invalid` says which entries have values out of range; `Rime.chi2` gives NaN for them, the calls
    that return visibilities raise an error.

    Attributes
    ----------
    lm : float64 (n_batch, n_source, 2)
        Direction cosines east and north of the phase centre.
    stokes : float64 (n_batch, n_time or 1, n_source, 4), Jy
        I, Q, U, V at `ref_freq`, of any sign; constant or per time slot.
    ref_freq : float64 (n_source,), Hz
    spectral_terms : float64 (n_batch, n_source, 4, n_term)
        For each Stokes parameter a0, a1, ... of (nu/nu0)^(a0 + a1 ln(nu/nu0) + ...) or,
        where `log_spectrum` is False, c1, c2, ... of 1 + c1 (nu/nu0 - 1) + c2 (nu/nu0 - 1)^2 + ...
        (physics: section 4); n_term may be 0: a flat spectrum.
    log_spectrum : bool (n_source,)
    shape : float64 (n_batch, n_gaussian + n_profile, 3), rad
        emaj, emin (FWHM) and pa of the Gaussians (physics: section 5); maj, min and pa of the profiles,
        which come last (`physics.profiles`).
    beam : Beam, JonesBeam or None
    template_scale : float64 (n_batch, n_template) or None
        Factors of the templates of `Rime`.
    template_shift : float64 (n_batch, n_template, 2) or None
        How far east and north (direction cosines) templates are moved.
    profile : float64 (n_batch, n_profile, 8) or None
        The other parameters of the profiles; 0 where a kind has fewer.
    profile_kind : int32 (n_profile,) or None
        What each profile is: a code of `physics.profiles.CODES`, or one that `register_profile` gave.
    antenna_terms : AntennaTerms or None
        Jones matrices of the antennas, applied to the sum over sources and templates.
    spectral_form : int32 (n_source,) or None
        Codes of `spectral_forms`: what `spectral_terms` mean, at least four of them. Up to 1 and where there
        is None they are those of a polynomial, as above.
    faraday : float64 (n_batch, n_source, 4) or None
        RM (rad/m^2), lambda0^2 (m^2), width of a Burn slab and dispersion (rad/m^2): `brightness.faraday`.
        They turn Q and U, which are those at lambda0.
    varied : (int, int) or None
        Where derivatives are taken, those with respect to sources from the first number to before the second
        alone are asked for; the others are 0 and take no time, as are those with respect to the beam. Where
        there is None, all are asked for.

    Raises
    ------
    InputError
        A wrong shape or type, a reference frequency that is not positive, an unknown form of spectrum, or
        varied sources that are not there.
    """

    lm: NDArray[np.float64]
    stokes: NDArray[np.float64]
    ref_freq: NDArray[np.float64]
    spectral_terms: NDArray[np.float64]
    log_spectrum: NDArray[np.bool_]
    shape: NDArray[np.float64]
    beam: Beam | JonesBeam | None = None
    template_scale: NDArray[np.float64] | None = None
    template_shift: NDArray[np.float64] | None = None
    profile: NDArray[np.float64] | None = None
    profile_kind: NDArray[np.int32] | None = None
    antenna_terms: AntennaTerms | None = None
    spectral_form: NDArray[np.int32] | None = None
    faraday: NDArray[np.float64] | None = None
    varied: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.template_shift is not None and self.template_scale is None:
            raise InputError("template_shift was given without template_scale")
        if (self.profile is None) != (self.profile_kind is None):
            raise InputError("profile and profile_kind belong together: give both or neither")
        sizes: dict[str, int] = {}
        for name, (dtype, axes) in AXES.items():
            if name not in OPTIONAL or getattr(self, name) is not None:
                check.coerce(self, name, dtype, axes, sizes)
        if self.spectral_form is not None:
            self._check_forms(self.spectral_form, sizes["term"])
        if sizes["shape"] > sizes["source"]:
            n_shape, n_source = sizes["shape"], sizes["source"]
            what = "Gaussians" if self.profile is None else "Gaussians and profiles"
            raise InputError(f"shape has {n_shape} {what}, but there are only {n_source} sources")
        if sizes.get("profile", 0) > sizes["shape"]:
            raise InputError(
                f"shape must have a row for each of the {sizes['profile']} profiles, got {sizes['shape']}"
            )
        if self.varied is not None and not 0 <= self.varied[0] <= self.varied[1] <= self.n_source:
            raise InputError(f"varied must lie within 0 .. {self.n_source}, got {self.varied}")
        if not np.all(self.ref_freq > 0.0):
            raise InputError(f"ref_freq must be positive (Hz), got {self.ref_freq.min():g}")
        if isinstance(self.beam, JonesBeam):
            self.beam.check_batch(self.n_batch, self.n_source)
        elif self.beam is not None and self.beam.scale.size != self.n_batch:
            raise InputError(
                f"beam.scale must have shape (batch = {self.n_batch},), got {self.beam.scale.shape}"
            )
        if self.antenna_terms is not None and len(self.antenna_terms.jones) not in (1, self.n_batch):
            raise InputError(
                f"antenna_terms.jones must have a batch of 1 or {self.n_batch}, "
                f"got {len(self.antenna_terms.jones)}"
            )

    @staticmethod
    def _check_forms(form: NDArray[np.int32], n_term: int) -> None:
        low, high = int(form.min(initial=0)), int(form.max(initial=0))
        if low < 0 or high >= N_FORM:
            raise InputError(f"spectral_form must be within 0 .. {N_FORM - 1}, got {low} .. {high}")
        if high > POWER_LAW and n_term < N_OWN:
            raise InputError(f"spectral_form {high} needs {N_OWN} spectral terms or more, got {n_term}")

    @classmethod
    def unchecked(cls, *arrays: Any, polarised: bool, **others: Any) -> Sources:
        """Sources of contiguous arrays that have the right shapes and types: nothing is checked.

        For code that makes new sources for every likelihood call, where checks would take longer than the
        computation.

        Parameters
        ----------
        arrays, others
            The attributes, in their order or by name.
        polarised : bool
            Whether any of Q, U, V may be other than 0.
        """
        new = object.__new__(cls)
        new.__dict__.update(
            _DEFAULTS, **dict(zip(_NAMES, arrays, strict=False)), **others, polarised=polarised
        )
        return new

    def copy(self) -> Sources:
        """Sources with these values in arrays of their own, checked."""
        values = {name: getattr(self, name) for name in _NAMES}
        return Sources(**{k: v.copy() if hasattr(v, "copy") else v for k, v in values.items()})

    def entries(self, start: int, stop: int) -> Sources:
        """The entries start .. stop - 1 of the batch; `polarised` is that of the whole batch."""
        new = object.__new__(Sources)
        new.__dict__.update(self.__dict__, polarised=self.polarised)
        for name in _PER_ENTRY:
            if (values := getattr(self, name)) is not None:
                new.__dict__[name] = values[start:stop]
        for part in ("beam", "antenna_terms"):
            if (terms := getattr(self, part)) is not None:
                new.__dict__[part] = terms.entries(start, stop)
        return new

    @property
    def given_arrays(self) -> tuple[bool, ...]:
        """Which of the arrays that may be left out are there: kernels are compiled for these."""
        return tuple(getattr(self, name) is not None for name in OPTIONAL)

    @cached_property
    def polarised(self) -> bool:
        """Whether any of Q, U, V is other than 0, or may be for other parameters of the same model."""
        return bool(np.any(self.stokes[..., 1:]))

    def invalid(self) -> NDArray[np.bool_]:
        """Entries of the batch with values out of range.

        Returns
        -------
        bool (n_batch,)
            A source below the horizon, l^2 + m^2 > 1 (physics: section 1), a FWHM or a scale of
            the beam below 0, or the scale of a `JonesBeam` of 0.
            A NaN is not counted: it makes the result NaN by itself.
        """
        bad = np.zeros(len(self.lm), dtype=bool)
        if not check.within_circle(self.lm):
            bad |= np.any(self.lm[..., 0] ** 2 + self.lm[..., 1] ** 2 > 1.0, axis=-1)
        for axis in (self.shape[..., 0], self.shape[..., 1]) if self.shape.size else ():
            if not np.minimum.reduce(axis, axis=None) >= 0.0:
                bad |= np.any(axis < 0.0, axis=-1)
        if isinstance(self.beam, JonesBeam):
            bad |= self.beam.scale <= 0.0
        elif self.beam is not None:
            bad |= self.beam.scale < 0.0
        return bad

    impossible = method_alias("Sources.impossible", invalid)

    @property
    def n_batch(self) -> int:
        """Number of parameter vectors that these are the sources of."""
        return int(self.lm.shape[0])

    @property
    def n_source(self) -> int:
        """Number of points, Gaussians and profiles."""
        return int(self.lm.shape[1])

    @property
    def varied_range(self) -> tuple[int, int]:
        """The first source that varies, and the one behind the last."""
        return (0, self.n_source) if self.varied is None else self.varied

    @property
    def n_shape(self) -> int:
        """Number of Gaussians and profiles, the last of the sources."""
        return int(self.shape.shape[1])

    @property
    def n_profile(self) -> int:
        """Number of profiles, the last of these."""
        return 0 if self.profile_kind is None else int(self.profile_kind.size)

    @property
    def n_gaussian(self) -> int:
        """Number of Gaussians."""
        return self.n_shape - self.n_profile

    @property
    def n_point(self) -> int:
        """Number of points, the first of the sources."""
        return self.n_source - self.n_shape


_NAMES = tuple(field.name for field in fields(Sources))
_DEFAULTS = {field.name: None for field in fields(Sources) if field.default is None}
OPTIONAL = tuple(name for name in AXES if name in _DEFAULTS)
"""Arrays of `Sources` that may be None."""
_PER_ENTRY = tuple(name for name, (_, axes) in AXES.items() if axes[0] == "batch")
