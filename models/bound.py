"""A sky model bound to data: theta in, priors and source arrays out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.models.checks import Check, OnSky, UserCondition, log_mass, split_orders
from biro.models.constraint import Condition
from biro.models.density import JointPrior
from biro.models.errors import ModelError
from biro.models.frame import Frame
from biro.models.implied import Implied
from biro.models.instrument import InstrumentLayout
from biro.models.parameter import Parameter
from biro.models.slots import Slots
from rime_kernels.arrays import Sources

if TYPE_CHECKING:
    from biro.models.sky import SkyModel

Array = NDArray[np.float64]
_TAIL = 1e-9
# A prior that reaches this far from the phase centre may cross the horizon.
_NEAR_HORIZON = 0.999
_WIDE = 0.5


class BoundModel:
    """Parameters of a sky model, their prior, and the arrays that the kernels want; see `SkyModel.bind`.

    theta is float64 (n_param,) or (n_batch, n_param), each parameter in the unit of the model file.

    Parameters
    ----------
    model : SkyModel
    frames : sequence of Frame

    Attributes
    ----------
    parameters : tuple of Parameter
    log_constraint_mass : float
        Natural log of the prior probability that the constraints keep which the transform does not build in.
    log_constraint_mass_error : float
        Its standard error; 0 where it is a formula or a quadrature.
    source_names : tuple of str
        In the order of the arrays: points, then Gaussians.
    """

    def __init__(self, model: SkyModel, frames: Sequence[Frame]) -> None:
        frames = tuple(frames)
        if not frames:
            raise ModelError("a sky model must be bound to at least one partition of data, found none")
        self.model, self.frames = model, frames
        self.origin = model.origin(frames)
        slots = Slots()
        self._layout = model.layout(slots)
        self._instrument = InstrumentLayout(model, frames, slots)
        self._resolved = slots.resolve()
        self.parameters: tuple[Parameter, ...] = self._resolved.parameters
        self.source_names = tuple(self._layout.names)
        self._check_times()
        self._extent = [self._find_extent(frame) for frame in frames]
        checks, chains = self._find_checks()
        self._checks = checks
        self._prior = JointPrior(self.parameters, chains)
        self._known_lm = self._constant_positions()
        self.log_constraint_mass, self.log_constraint_mass_error = log_mass(
            self._resolved, checks, chains, self._prior.transform
        )

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names in the order of theta."""
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def n_param(self) -> int:
        """How many numbers are fitted."""
        return len(self.parameters)

    def prior_transform(self, unit: ArrayLike) -> Array:
        """theta, float64 (..., n_param), of points of the unit cube (..., n_param).

        Constraints of order between parameters of one prior are built in, others are not: see `allowed`.
        """
        return self._prior.transform(self._shaped(unit))

    def log_prior(self, theta: ArrayLike) -> Array:
        """Natural log of the normalised prior density, per units of theta: float64 (...) for (..., n_param).

        -inf outside the priors and where a constraint is broken. Periodic parameters are taken
        modulo their period.
        """
        wrapped = self._prior.wrap(self._shaped(theta))
        density = self._prior.log_density(wrapped)
        if self._checks:
            density = np.where(self._allowed(wrapped), density - self.log_constraint_mass, -np.inf)
        return density

    def allowed(self, theta: ArrayLike) -> NDArray[np.bool_]:
        """Whether the constraints that the transform does not build in hold: bool (...)."""
        return self._allowed(self._prior.wrap(self._shaped(theta)))

    def wrap(self, theta: ArrayLike) -> Array:
        """theta with periodic parameters (position angles) brought back into their prior's range."""
        return self._prior.wrap(self._shaped(theta))

    def sources(self, theta: ArrayLike, i_frame: int) -> Sources:
        """The sources of a batch as the kernels want them.

        Parameters
        ----------
        theta : float64 (n_batch, n_param) or (n_param,)
        i_frame : int
            Which partition: positions are relative to its phase centre.

        Returns
        -------
        Sources
            With NaN positions for a source below the horizon.
        """
        values = self._values(theta)
        layout = self._layout
        known = self._known_lm[i_frame]
        if known is None:
            lm = layout.lm(values[:, layout.position], self.origin, self.frames[i_frame].phase_centre)
        else:
            lm = np.repeat(known, values.shape[0], axis=0)
        return Sources(
            lm=lm,
            stokes=layout.brightness(values),
            ref_freq=layout.ref_freq,
            spectral_terms=layout.spectral_terms(values),
            log_spectrum=layout.log_spectrum,
            shape=layout.shapes(values),
            beam=self._instrument.beam(values, i_frame),
        )

    def noise_factor(self, theta: ArrayLike) -> Array:
        """What the stated noise of each partition is multiplied by, float64 (n_batch, n_frame)."""
        return np.asarray(self._values(theta)[:, self._instrument.noise])

    def extent(self, i_frame: int) -> float:
        """Largest |l| or |m| that a source takes under the prior, less 1e-9 on either side; 1 at most."""
        return self._extent[i_frame]

    def to_toml(self) -> str:
        """The model with what the data decided filled in; what only Python can say stands in comments."""
        from biro.models.files.toml import to_toml

        return to_toml(self.model, centre=self.origin, python_as_comments=True)

    def digest(self) -> str:
        """sha256 of the resolved model: its text and the names of its parameters and partitions."""
        centres = [f"{frame.label} {frame.phase_centre!r}" for frame in self.frames]
        text = "\n".join([self.to_toml(), *self.parameter_names, *centres])
        return hashlib.sha256(text.encode()).hexdigest()

    def _shaped(self, theta: ArrayLike) -> Array:
        array = np.asarray(theta, dtype=np.float64)
        if array.ndim == 0 or array.shape[-1] != self.n_param:
            raise ModelError(
                f"theta must have shape (n_param,) or (n_batch, n_param) with n_param = {self.n_param}, "
                f"got {array.shape}"
            )
        return array

    def _values(self, theta: ArrayLike) -> Array:
        array = self._shaped(theta)
        if array.ndim > 2:
            raise ModelError(f"theta must have shape (n_batch, {self.n_param}), got {array.shape}")
        return self._resolved.values(self._prior.wrap(np.atleast_2d(array)))

    def _allowed(self, wrapped: Array) -> NDArray[np.bool_]:
        shape = wrapped.shape[:-1]
        allowed = np.ones(shape, dtype=bool)
        if not self._checks:
            return allowed
        flat = wrapped.reshape(-1, self.n_param)
        values = self._resolved.values(flat)
        for check in self._checks:
            allowed &= check.test(flat, values).reshape(shape)
        return allowed

    def _check_times(self) -> None:
        n_time = self._layout.n_time
        for frame in self.frames:
            if n_time > 1 and frame.time.size != n_time:
                raise ModelError(
                    f"brightness lists have {n_time} elements, but partition {frame.label!r} "
                    f"has {frame.time.size} times"
                )

    def _find_extent(self, frame: Frame) -> float:
        """Over a 3 x 3 grid of each source's box, edges and middle; finer in a wide right ascension."""
        low, high = (limit[self._layout.position] for limit in self._resolved.limits(_TAIL))
        # l is largest a quarter turn from the centre, which may lie between the edges: 5.6 deg miss 0.5 %.
        n_first = 65 if (high - low)[:, 0].max() > _WIDE else 3
        first, second = np.linspace(0, 1, n_first), (0.0, 0.5, 1.0)
        steps = np.array([[a, b] for a in first for b in second])[:, None, :]
        lm = self._layout.lm(low + steps * (high - low), self.origin, frame.phase_centre)
        fixed = (low == high).all(axis=-1)
        lost = fixed & np.isnan(lm).any(axis=(0, 2))
        if lost.any():
            name = self._layout.names[int(np.argmax(lost))]
            raise ModelError(
                f"source {name!r} lies below the horizon of the tangent plane of partition {frame.label!r} "
                "(90 degrees or more from its phase centre); remove it or select other fields"
            )
        if np.isnan(lm).all(axis=(0, 2)).any():
            name = self._layout.names[int(np.argmax(np.isnan(lm).all(axis=(0, 2))))]
            raise ModelError(
                f"source {name!r}: its prior lies below the horizon of partition {frame.label!r}"
            )
        return 1.0 if np.isnan(lm).any() else float(np.abs(lm).max())

    def _find_checks(self) -> tuple[list[Check], list[list[int]]]:
        implied = Implied(self._resolved)
        implied.shapes(self._layout)
        # A negative fraction is a positive one at an angle 90 deg away: every posterior would be there twice.
        for least, slots in ((0.0, self._layout.linear[:, 1]), (-1.0, self._layout.circular[:, 1])):
            for slot in slots:
                implied.limit(int(slot), least, 1.0)
        for slot in self._instrument.positive:
            implied.limit(slot, 0.0, np.inf, above_low=True)
        implied.constraints(self.model.constraints)
        chains, orders = split_orders(self._resolved, implied.orders)
        checks: list[Check] = [*implied.limits, *orders]
        positions = self._layout.position
        if max(self._extent) > _NEAR_HORIZON:
            members = self._resolved.parameter_of[positions]
            checks.append(OnSky(self._on_sky, frozenset(int(p) for p in members.ravel() if p >= 0)))
        names = self.parameter_names
        checks += [UserCondition(c, names) for c in self.model.constraints if isinstance(c, Condition)]
        if any(isinstance(c, Condition) for c in self.model.constraints) and not names:
            raise ModelError("constraints: a function needs parameters, but the model has none")
        return checks, chains

    def _on_sky(self, values: Array) -> NDArray[np.bool_]:
        position = values[:, self._layout.position]
        good = np.ones(values.shape[0], dtype=bool)
        for centre in {frame.phase_centre for frame in self.frames}:
            lm = self._layout.lm(position, self.origin, centre)
            good &= np.isfinite(lm).all(axis=(1, 2))
        return good

    def _constant_positions(self) -> list[Array | None]:
        positions = self._layout.position
        if self._resolved.is_free(positions).any():
            return [None] * len(self.frames)
        fixed = self._resolved.base[positions][None]
        return [self._layout.lm(fixed, self.origin, frame.phase_centre) for frame in self.frames]
