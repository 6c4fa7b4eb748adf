"""`BoundModel`, a sky model bound to the partitions of an observation."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.models.bound.antenna_terms.jones import gains_of
from biro.models.bound.antenna_terms.log_gains import LogGains, log_gains
from biro.models.bound.antenna_terms.noise_terms import NoiseTerms
from biro.models.bound.antenna_terms.reach import Reach, reach_of
from biro.models.bound.assembly import PartitionInputs, SourceAssembly
from biro.models.bound.instrument_layout import InstrumentLayout
from biro.models.bound.jones_beams import PartitionBeam, check_reach, partition_beams
from biro.models.bound.light_curves import KnotTable, brightness_tables, knot_tables
from biro.models.bound.marginalised import check_alone
from biro.models.bound.per_partition import PerPartition
from biro.models.bound.positions.checks import largest_displacement
from biro.models.bound.positions.places import PositionFrame
from biro.models.bound.positions.prior_range import TAIL, PriorRange
from biro.models.bound.prior.constrained import ConstrainedPrior
from biro.models.bound.prior.implied import checks_of
from biro.models.bound.prior.joint import PriorTransformAt
from biro.models.bound.prior.unconstrained import Unconstrained
from biro.models.bound.shapes.checks import check_functions
from biro.models.bound.slots import ModelSlots, numbers_of
from biro.models.bound.source_layout import SourceLayout
from biro.models.bound.theta_batch import BoundParts, ThetaBatch
from biro.models.components.beam_cube import AntennaBeams, BeamCube
from biro.models.components.partition_view import PartitionView, SampledTimes
from biro.models.components.sky import SkyDescription
from biro.models.components.toml_text import to_toml
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Parameter
from rime_kernels.arrays import Beam, Sources
from rime_kernels.gradient import Gradient
from rime_kernels.jones_beam import JonesBeam

Array = NDArray[np.float64]
Index = NDArray[np.int64]
# A beam on a grid must hold sources for all but this of their priors, on either side.
_TAIL_OF_BEAM = 1e-3
# A prior that reaches this far from the phase centre may cross the horizon.
_NEAR_HORIZON = 0.999


class BoundModel:
    """Parameters of a sky model, their prior, and the arrays that the kernels want; see `SkyModel.bind`.

    theta is float64 (n_param,) or (n_batch, n_param), each parameter in the unit of the model file.

    Parameters
    ----------
    model : SkyDescription
        Such as a `SkyModel`.
    partitions : sequence of PartitionView
    beam : BeamCube, AntennaBeams or None
        What a beam of files holds, or a function was sampled to.
    without_gains : bool
        Whether to leave out the gains that have priors, but for what is fitted of these priors.

    Attributes
    ----------
    parameters : tuple of Parameter
    log_constraint_mass : float
        Natural log of the prior probability that the constraints keep which the transform does not build in.
    log_constraint_mass_error : float
        Its standard error; 0 where it is a formula or a quadrature.
    source_names : tuple of str
        In the order of the arrays: points, then Gaussians.
    noise_terms : NoiseTerms or None
        Factors of antennas and what is added to the stated noise; None where there is neither.
    noise_correlation : PerPartition or None
        rho and the smoothing of correlated noise, two numbers; None where samples are independent.
    parts : BoundParts
        What makes a `ThetaBatch` of checked theta.
    """

    def __init__(
        self,
        model: SkyDescription,
        partitions: Sequence[PartitionView],
        beam: BeamCube | AntennaBeams | None = None,
        *,
        without_gains: bool = False,
    ) -> None:
        partitions = tuple(partitions)
        if not partitions:
            raise ModelError("a sky model must be bound to at least one partition of data, found none")
        if model.image_priors:
            raise ModelError(
                f"image {model.image_priors[0].name!r} has pixels that are fitted, not given; fit the model "
                "with `biro fit` (biro.fit_image in Python)"
            )
        if model.populations:
            raise ModelError(
                f"population {model.populations[0].name!r}: the number of its sources is not given; infer it "
                "with `biro fit`, or write so many [[source]] tables (sky.with_number in Python)"
            )
        if not model.sources and not model.images:
            raise ModelError("no sources: the model has only a beam")
        self.model, self.partitions, self.origin = model, partitions, model.origin(partitions)
        slots = ModelSlots()
        self._layout = SourceLayout(model, slots)
        self._instrument = InstrumentLayout(model, partitions, slots, without_gains=without_gains)
        self._resolved = slots.resolve()
        rotations = self._instrument.beam_rotations(self._resolved, len(partitions))
        self._beams = partition_beams(model, beam, partitions, self._layout.seen, rotations)
        self.parameters: tuple[Parameter, ...] = self._resolved.parameters
        self.source_names = tuple(self._layout.names)
        for partition in partitions:
            self._layout.check(partition)
        self._knots = knot_tables(self._layout.stokes, self._layout.curves, partitions)
        moved: list[float] = largest_displacement(self._layout, self._resolved, partitions).tolist()
        self._range = PriorRange(self._layout, self._resolved, self.origin)
        extents = [self._range.extent(partition) for partition in partitions]
        self._extent = [min(1.0, extent + by) for extent, by in zip(extents, moved, strict=True)]
        moves = bool(self._layout.moving.size)
        self._frames = [
            PositionFrame(partition.phase_centre, float(partition.time.mean()) if moves else None)
            for partition in partitions
        ]
        self._doppler = [self._layout.doppler(partition) for partition in partitions]
        self._start = min(float(partition.time.min()) for partition in partitions)
        self._assembly = self._assemble(range(len(partitions)))
        self._single = {0: self._assembly} if len(partitions) == 1 else {}  # of one partition each
        on_sky = self._on_sky if max(self._extent) > _NEAR_HORIZON else None
        found = checks_of(self._layout, self._instrument, self._resolved, model.constraints, on_sky)
        check_alone(self._resolved, *found)
        self._prior = ConstrainedPrior(self._resolved, *found)
        self.log_constraint_mass = self._prior.log_mass
        self.log_constraint_mass_error = self._prior.log_mass_error
        factor, dof = PerPartition(self._resolved, self._instrument.noise), self._instrument.dof
        noise_dof = None if dof is None else PerPartition(self._resolved, dof)
        self.parts = BoundParts(self._prior, self._assembly, factor, noise_dof)
        terms = self._instrument.noise_terms
        self.noise_terms = None if terms is None else NoiseTerms(self._resolved, terms)
        correlation = self._instrument.correlation
        self.noise_correlation = None if correlation is None else PerPartition(self._resolved, correlation)
        if self._layout.has_functions:
            middle = self.sources(self.prior_transform(np.full((1, self.n_param), 0.5)), 0)
            check_functions(self.source_names, middle, max(partition.longest for partition in partitions))
        if self._beams:
            self._check_reach()

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names in the order of theta."""
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def is_constrained(self) -> bool:
        """Whether there is anything that `allowed` could forbid."""
        return bool(self._prior.checks)

    @property
    def n_param(self) -> int:
        """How many numbers are fitted."""
        return len(self.parameters)

    def at(self, theta: ArrayLike) -> ThetaBatch:
        """theta (n_batch, n_param) or (n_param,) as a batch that works out once what a step wants of it.

        Raises
        ------
        ModelError
            Any other shape.
        """
        return ThetaBatch(self.parts, self._batch(theta))

    def prior_transform(self, unit: ArrayLike) -> Array:
        """theta, float64 (..., n_param), of points of the unit cube (..., n_param).

        Constraints of order between parameters of one prior are built in, others are not: see `allowed`.
        """
        return self._prior.joint.transform(self._shaped(unit))

    def prior_transform_at(self, unit: ArrayLike) -> PriorTransformAt:
        """`prior_transform` at points of the unit cube (..., n_param), with its derivatives."""
        return self._prior.joint.transform_at(self._shaped(unit))

    def log_prior(self, theta: ArrayLike) -> Array:
        """Natural log of the normalised prior density, per units of theta: float64 (...) for (..., n_param).

        -inf outside the priors and where a constraint is broken. Periodic parameters are taken
        modulo their period.
        """
        return ThetaBatch(self.parts, self._shaped(theta)).log_prior

    def log_prior_slope(self, theta: ArrayLike) -> Array:
        """Derivatives of `log_prior` with respect to theta, (..., n_param); NaN where that is -inf."""
        return ThetaBatch(self.parts, self._shaped(theta)).log_prior_slope

    @property
    def box(self) -> tuple[Array, Array]:
        """Smallest and largest value of each parameter, (n_param,) each: what priors and bounds leave.

        -inf and inf where there is no end, and where a parameter is taken modulo its period.
        """
        return self._prior.box

    @cached_property
    def unconstrained(self) -> Unconstrained:
        """The change to parameters that may be any number.

        Everything that holds one parameter between two ends, and orders that the unit cube has, are built in;
        where other constraints fail is for `log_prior` to say.
        """
        return Unconstrained(self.parameters, *self.box, self._prior.joint.chains, self._prior.joint.periodic)

    def allowed(self, theta: ArrayLike) -> NDArray[np.bool_]:
        """Whether the constraints that the transform does not build in hold: bool (...)."""
        return ThetaBatch(self.parts, self._shaped(theta)).allowed

    def wrap(self, theta: ArrayLike) -> Array:
        """theta with periodic parameters (position angles) brought back into their prior's range."""
        return self._prior.joint.wrap(self._shaped(theta))

    def sources(self, theta: ArrayLike, i_partition: int) -> Sources:
        """The sources of a batch as the kernels want them.

        Parameters
        ----------
        theta : float64 (n_batch, n_param) or (n_param,)
        i_partition : int
            Which partition: positions are relative to its phase centre.

        Returns
        -------
        Sources
            With NaN positions for a source below the horizon.
        """
        if i_partition not in self._single:
            self._single[i_partition] = self._assemble([i_partition])
        assembly = self._single[i_partition]
        (shared,) = assembly.sources(assembly.values.of(self.at(theta).wrapped))
        return shared.copy()

    def sources_of_all(self, theta: ArrayLike) -> list[Sources]:
        """The sources of each partition, as `sources` has them, with less work.

        What does not depend on the partition is worked out once. The arrays are shared between
        partitions, and those that do not depend on theta with other calls: nobody may write into them.
        """
        return self.at(theta).sources()

    def push_forward(self, theta: ArrayLike, change: ArrayLike) -> Iterator[Gradient]:
        """The derivative of `sources_of_all` along a change of theta: `ThetaBatch.push_forward`."""
        return self.at(theta).push_forward(self._batch(change))

    def pull_back(self, theta: ArrayLike, gradients: Iterable[Gradient], weight: ArrayLike = 1.0) -> Array:
        """The adjoint of `sources_of_all`, float64 (n_batch, n_param): `ThetaBatch.pull_back`."""
        return self.at(theta).pull_back(gradients, weight)

    def pull_back_noise(self, by_factor: Array, by_dof: Array | None = None) -> Array:
        """Derivatives with respect to theta (n_batch, n_param), from those to `noise_factor`, `noise_dof`."""
        slopes, dof = self.parts.noise_factor.pull_back(by_factor), self.parts.noise_dof
        if dof is not None and by_dof is not None:
            slopes += dof.pull_back(by_dof)
        return slopes

    @property
    def noise_parameters(self) -> dict[int, tuple[NDArray[np.bool_], float]]:
        """For each noise-factor parameter, its partitions, bool (n_partition,), and factor per unit."""
        return self.parts.noise_factor.parameters

    def noise_factor(self, theta: ArrayLike) -> Array:
        """What the stated noise of each partition is multiplied by, float64 (n_batch, n_partition)."""
        return self.at(theta).noise_factor

    def noise_dof(self, theta: ArrayLike) -> Array | None:
        """Degrees of freedom of Student's t, float64 (n_batch, n_partition); None where noise is Gaussian."""
        return self.at(theta).noise_dof

    def extent(self, i_partition: int) -> float:
        """Largest |l| or |m| that a source takes under the prior, less 1e-9 on either side; 1 at most."""
        return float(self._extent[i_partition])

    def taken(self, samples: Sequence[SampledTimes]) -> BoundModel:
        """The model with sources as some times and channels of each partition see them.

        Segments of gains, references, knots and all else that the data decide are those of all times.
        """
        found = copy.copy(self)
        for cached in ("log_gains", "reach"):
            found.__dict__.pop(cached, None)
        found.partitions = tuple(map(PartitionView.taken, self.partitions, samples))
        found._instrument = self._instrument.taken(samples)
        found._beams = list(map(PartitionBeam.taken, self._beams, samples))
        tables = zip(self._brightness, samples, strict=True)
        found._knots = [None if knots is None else knots.taken(own.times) for knots, own in tables]
        found._assembly = found._assemble(range(len(samples)))
        found._single = {0: found._assembly} if len(samples) == 1 else {}
        found.parts = replace(self.parts, assembly=found._assembly)
        return found

    def steps(self, i_partition: int) -> tuple[Index, Index]:
        """Numbers of the times, int64 (n_time,), and channels (n_chan,) that tell steps of a model.

        Neighbours with one number are in one segment of fitted gains and block of leakages, between the same
        knots, and have the same beams, and the same known gains where these are not interpolated.
        """
        nearest = any(gain.interpolation == "nearest" for gain in self.model.gains)
        of_times, of_chans = self._instrument.steps(i_partition, self.partitions[i_partition], nearest)
        knots = self._brightness[i_partition]
        if knots is not None:
            of_times.append(knots.before)
        if self._beams and len(self._beams[i_partition].which) > 1:
            of_times.append(self._beams[i_partition].which.astype(np.int64))
        return numbers_of(of_times), numbers_of(of_chans)

    @property
    def _brightness(self) -> list[KnotTable | None]:
        return brightness_tables(self._layout.stokes, self._knots, self.partitions)

    @property
    def has_antenna_terms(self) -> bool:
        """Whether rotation of feeds, leakage or gains change anything."""
        return self._assembly.has_antenna_terms

    @property
    def has_fitted_gains(self) -> bool:
        """Whether there are parameters of gains."""
        return any(terms.factors for terms in self._instrument.terms)

    def gains(self, theta: ArrayLike, i_partition: int, chan: int = 0) -> NDArray[np.complex128]:
        """Gains of the antennas at one channel, complex128 (n_batch, n_time, n_antenna, 2): of each feed."""
        batch = self.at(theta).wrapped
        if not self._instrument.terms:
            view = self.partitions[i_partition]
            return np.ones((len(batch), view.time.size, len(view.antenna_names), 2), np.complex128)
        return gains_of(self._instrument.terms[i_partition], self._resolved, batch, chan)

    @cached_property
    def log_gains(self) -> LogGains:
        """The gains that are fitted as sums of coordinates with normal or flat priors.

        Raises
        ------
        ModelError
            No gains are fitted, or one has another prior.
        """
        if not self.has_fitted_gains:
            raise ModelError("gain: nothing has a prior: there are no gains to integrate over or solve for")
        return log_gains(self._instrument.terms, self._resolved)

    @cached_property
    def reach(self) -> Reach:
        """At which times each parameter changes something: those of gains of a segment in that alone."""
        return reach_of(self._instrument.terms, self.partitions, self._resolved)

    @property
    def gain_lines(self) -> list[str]:
        """Which antennas are references of fitted gains, a line for each quantity."""
        return list(self._instrument.gain_lines)

    def image_shift(self) -> float:
        """How far east or north an image is moved at most under the prior, rad; 0 where none is."""
        shifts = (limit[self._layout.image[:, 1:]] for limit in self._resolved.limits(TAIL))
        return float(max(np.abs(shift).max(initial=0.0) for shift in shifts))

    def fixed_beam(self, i_partition: int) -> Beam | PartitionBeam | None:
        """The beam through which a partition sees an image that is worked out once.

        Raises
        ------
        ModelError
            Beam or pointing errors are fitted.
        """
        instrument = self._instrument
        tables = [instrument.pointing[i_partition].table.ravel()] if instrument.pointing else []
        turns = bool(self._beams) and self._beams[i_partition].turn is not None
        if turns or self._resolved.is_free(np.concatenate([[instrument.scale], *tables])).any():
            raise ModelError(
                "biro computes an [[image]] once, so its beam, pointing errors and feed rotation cannot be "
                "fitted; set them to numbers, or remove [[image]]"
            )
        return self.beam_at(self.prior_transform(np.full((1, self.n_param), 0.5)), i_partition)

    def beam_at(self, theta: ArrayLike, i_partition: int) -> Beam | PartitionBeam | None:
        """The beam of a partition for one parameter vector, as images are seen through it."""
        beam = self.sources(theta, i_partition).beam
        if not isinstance(beam, JonesBeam):
            return beam
        pointing = None if beam.pointing is None else beam.pointing[0]
        turn = None if beam.turn is None else beam.turn[0]
        return self._beams[i_partition].fixed(float(beam.scale[0]), pointing, turn)

    def to_toml(self) -> str:
        """The model with what the data decided filled in; what only Python can say stands in comments."""
        return to_toml(self.model, centre=self.origin, python_as_comments=True)

    def digest(self) -> str:
        """sha256 of the resolved model: its text and the names of its parameters and partitions.

        Not of where images lie: `Likelihood.digest` has what is in them.
        """
        centres = [f"{partition.label} {partition.phase_centre!r}" for partition in self.partitions]
        lines = [line for line in self.to_toml().split("\n") if not line.startswith(("file = ", "table = "))]
        text = "\n".join([*lines, *self.parameter_names, *centres])
        sha = hashlib.sha256(text.encode())
        for terms in self._instrument.terms:  # angles and gains, which the text does not have
            sha.update(repr(terms.key).encode())
        if any(self._doppler):
            sha.update(repr(self._doppler).encode())
        for pointing in self._instrument.pointing:
            if pointing.centre is not None:
                sha.update(pointing.centre.tobytes())
        for beam in self._beams:
            for content in beam.content:
                sha.update(content)
        return sha.hexdigest()

    def _shaped(self, theta: ArrayLike) -> Array:
        array = np.asarray(theta, dtype=np.float64)
        if array.ndim == 0 or array.shape[-1] != self.n_param:
            raise ModelError(
                f"theta must have shape (n_param,) or (n_batch, n_param) with n_param = {self.n_param}, "
                f"got {array.shape}"
            )
        return array

    def _batch(self, theta: ArrayLike) -> Array:
        array = self._shaped(theta)
        if array.ndim == 2:
            return array
        if array.ndim == 1:
            return array[None]
        raise ModelError(f"theta must have shape (n_batch, {self.n_param}), got {array.shape}")

    def _assemble(self, i_partitions: Iterable[int]) -> SourceAssembly:
        pointing, terms = self._instrument.pointing, self._instrument.terms
        each = [
            PartitionInputs(
                self._frames[i],
                pointing[i] if pointing else None,
                terms[i] if terms else None,
                self._beams[i] if self._beams else None,
                self._knots[i],
                self._doppler[i],
            )
            for i in i_partitions
        ]
        return SourceAssembly(self._layout, self._instrument, self._resolved, self.origin, self._start, each)

    def _check_reach(self) -> None:
        """Refuse sources that may leave the grid of a beam; its width and pointing are at their middle."""
        if not self.source_names:
            return
        middle = self.prior_transform(np.full((1, self.n_param), 0.5))
        for i, partition in enumerate(self.partitions):
            beam = self.beam_at(middle, i)
            assert isinstance(beam, PartitionBeam)
            lm = self._range.places(partition, _TAIL_OF_BEAM)[0]
            check_reach(beam, lm, self._layout.seen, self._layout.names, partition.label)

    def _on_sky(self, theta: Array) -> NDArray[np.bool_]:
        places = self._assembly.positions(self._assembly.values.of(theta))
        return np.asarray(np.logical_and.reduce([np.isfinite(lm).all(axis=(1, 2)) for lm in places]))
