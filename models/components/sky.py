"""What a user writes about the sky and the instrument, checked as far as that is possible without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from biro.models.components.antenna_terms.feeds import Feeds
from biro.models.components.antenna_terms.gain import Gain
from biro.models.components.antenna_terms.ionosphere import Ionosphere
from biro.models.components.antenna_terms.leakage import Leakage
from biro.models.components.beam import BEAMS, AiryBeam, Cos3Beam, GaussianBeam, Pointing
from biro.models.components.constraint import read_constraints
from biro.models.components.direction import Centre, parse_direction, separation
from biro.models.components.image import ImageModel
from biro.models.components.image_prior import ImagePrior
from biro.models.components.image_term import ImageTerm
from biro.models.components.jones_beam import GRID_BEAMS, FunctionBeam
from biro.models.components.noise import Noise
from biro.models.components.partition_view import PartitionView
from biro.models.components.population import Population
from biro.models.components.source import Source, si_value
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, QuantityLike, quantity, read_entry
from biro.models.quantities.strict import Entry, short_repr
from biro.models.quantities.units import ANGLE, FREQUENCY

MAX_SOURCES = 1_000_000
DEFAULT_NOISE = Noise()


@dataclass(frozen=True)
class SkyDescription:
    """The entries of a sky model; see `SkyModel`, which can be bound to data."""

    label: ClassVar[str] = "sky"
    sources: Entry
    _: KW_ONLY
    images: Entry = ()
    image_priors: Entry = ()
    populations: Entry = ()
    ref_freq: QuantityLike = None
    centre: Entry = None
    centre_error: QuantityLike = None
    beam: Entry = None
    pointing: Entry = None
    feeds: Entry = None
    leakage: Entry = None
    gain: Entry = None
    ionosphere: Entry = None
    noise: Entry = DEFAULT_NOISE
    constraints: Entry = ()

    def __post_init__(self) -> None:
        self._check_sources()
        self._check_populations()
        if self.ref_freq is not None:
            ref_freq = read_entry("ref_freq", quantity, self.ref_freq, FREQUENCY)
            if not isinstance(ref_freq, Fixed) or not ref_freq.value > 0:
                raise ModelError(f"ref_freq: must be a positive number, found {short_repr(self.ref_freq)}")
            object.__setattr__(self, "ref_freq", ref_freq)
        if self.centre is not None:
            object.__setattr__(self, "centre", read_entry("centre", parse_direction, self.centre))
        if self.centre_error is not None:
            object.__setattr__(self, "centre_error", self._read_centre_error())
        self._check_kind("beam", (*BEAMS.values(), *GRID_BEAMS.values(), FunctionBeam))
        self._check_kind("pointing", (Pointing,))
        self._check_kind("feeds", (Feeds,))
        self._check_kind("leakage", (Leakage,))
        if isinstance(self.gain, (list, tuple)):
            object.__setattr__(self, "gain", self.gain[0] if len(self.gain) == 1 else tuple(self.gain))
        for gain in self.gains:
            if not isinstance(gain, Gain):
                raise ModelError(f"gain: expected Gain, or a list of them, found {short_repr(gain)}")
        self._check_kind("ionosphere", (Ionosphere,))
        self._check_apparent()
        if self.pointing is not None and self.beam is None:
            raise ModelError("pointing: pointing errors have no effect without a beam; write a [beam] table")
        if not isinstance(self.noise, Noise):
            raise ModelError(f"noise: expected Noise, found {short_repr(self.noise)}")
        object.__setattr__(self, "constraints", read_entry("constraints", read_constraints, self.constraints))

    def _read_centre_error(self) -> Fixed:
        error = read_entry("centre_error", quantity, self.centre_error, ANGLE)
        if self.centre is None:
            raise ModelError("centre_error: needs centre")
        if not isinstance(error, Fixed) or not 0 <= si_value(error, ANGLE) < 1e-3:
            raise ModelError(f"centre_error: must be 0 .. 1e-3 rad, found {short_repr(self.centre_error)}")
        return error

    @property
    def gains(self) -> tuple[Gain, ...]:
        """The terms whose product the gain is."""
        if self.gain is None:
            return ()
        return tuple(self.gain) if isinstance(self.gain, tuple) else (self.gain,)

    def _check_apparent(self) -> None:
        """Refuse sources of apparent flux beside a scalar beam, which all sources are seen through."""
        apparent = next((source for source in self.sources if not source.beam), None)
        if apparent is not None and isinstance(self.beam, (Cos3Beam, GaussianBeam, AiryBeam)):
            raise ModelError(
                f"source {apparent.name!r}: beam = false, but all sources are seen through a scalar beam of "
                f'kind {self.beam.kind!r}; write kind = "dish", pattern = "{self.beam.kind}", the same beam '
                "as a Jones matrix"
            )

    def _check_sources(self) -> None:
        if isinstance(self.sources, Source):
            object.__setattr__(self, "sources", (self.sources,))
        if isinstance(self.images, ImageTerm):
            object.__setattr__(self, "images", (self.images,))
        if isinstance(self.images, ImagePrior):
            object.__setattr__(self, "images", (self.images,))
        if not isinstance(self.images, Sequence):
            raise ModelError(f"images: expected a list of ImageTerm, found {short_repr(self.images)}")
        fitted = [image for image in self.images if isinstance(image, ImagePrior)]
        object.__setattr__(self, "image_priors", (*self.image_priors, *fitted))
        object.__setattr__(
            self, "images", tuple(image for image in self.images if not isinstance(image, ImagePrior))
        )
        others = self.images or self.image_priors or self.populations
        least = 0 if others or self.beam is not None else 1
        if not isinstance(self.sources, Sequence) or not least <= len(self.sources) <= MAX_SOURCES:
            raise ModelError(
                f"sources: expected a list of {least} to {MAX_SOURCES} sources, "
                f"found {short_repr(self.sources)}"
            )
        seen: set[str] = set()
        for source in self.sources:
            if isinstance(source, ImageTerm):
                raise ModelError(
                    f"sources: {source.name!r} is an image; give it as SkyModel(sources, images=[...])"
                )
            if not isinstance(source, Source):
                raise ModelError(
                    f"sources: expected PointSource, GaussianSource or the like, found {short_repr(source)}"
                )
            if source.name in seen:
                raise ModelError(
                    f"source {source.name!r}: another source has this name; names must be unique"
                )
            seen.add(source.name)
        for image in (*self.images, *self.image_priors):
            if not isinstance(image, ImageTerm | ImagePrior):
                found = short_repr(image)
                if isinstance(image, ImageModel):
                    found = "ImageModel; write ImageTerm('name', file=image)"
                raise ModelError(f"images: expected ImageTerm or ImagePrior, found {found}")
            if image.name in seen:
                raise ModelError(
                    f"image {image.name!r}: another source or image has this name; names must be unique"
                )
            seen.add(image.name)
        object.__setattr__(self, "sources", tuple(self.sources))
        object.__setattr__(self, "images", tuple(self.images))

    def _check_populations(self) -> None:
        """Refuse what is no population, and names that its sources and others would share."""
        if isinstance(self.populations, Population):
            object.__setattr__(self, "populations", (self.populations,))
        if not isinstance(self.populations, Sequence):
            raise ModelError(
                f"populations: expected a list of Population, found {short_repr(self.populations)}"
            )
        owner = {part.name: f"a source or image {part.name!r}" for part in self._named}
        for population in self.populations:
            if not isinstance(population, Population):
                raise ModelError(f"populations: expected Population, found {short_repr(population)}")
            for name in (population.name, *population.source_names):
                if name in owner:
                    raise ModelError(
                        f"population {population.name!r}: {name!r} is the name of {owner[name]}, too; "
                        "names must be unique"
                    )
            names = (population.name, *population.source_names)
            owner |= dict.fromkeys(names, f"population {population.name!r}")
        object.__setattr__(self, "populations", tuple(self.populations))

    @property
    def _named(self) -> tuple[Source | ImageTerm | ImagePrior, ...]:
        return (*self.sources, *self.images, *self.image_priors)

    def _check_kind(self, key: str, kinds: tuple[type, ...]) -> None:
        value = getattr(self, key)
        if value is not None and not isinstance(value, kinds):
            names = ", ".join(kind.__name__ for kind in kinds)
            raise ModelError(f"{key}: expected {names}, found {short_repr(value)}")

    def origin(self, partitions: Sequence[PartitionView]) -> Centre:
        """Where offsets start, rad: `centre`, or the phase centre that equals it within `centre_error`."""
        if self.centre is None:
            return partitions[0].phase_centre
        if self.centre_error is not None:
            error = si_value(self.centre_error, ANGLE)
            for partition in partitions:
                if separation(partition.phase_centre, self.centre) <= error:
                    return partition.phase_centre
        return tuple(self.centre)
