"""The sky model that a user writes, as a file or in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any, ClassVar

from biro.models.bound.implied_constraints import Implied
from biro.models.bound.slots import Slots
from biro.models.bound.source_layout import SourceLayout
from biro.models.components.beam import AiryBeam, Cos3Beam, GaussianBeam, Pointing
from biro.models.components.constraint import read_constraints
from biro.models.components.direction import Centre, parse_direction
from biro.models.components.image_term import ImageTerm
from biro.models.components.noise import Noise
from biro.models.components.partition_view import PartitionView
from biro.models.components.source import RESERVED, GaussianSource, PointSource, in_si
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, QuantityLike, quantity, under
from biro.models.quantities.strict import shown, strict
from biro.models.quantities.units import FREQUENCY

if TYPE_CHECKING:
    from biro.models.bound.model import BoundModel

MAX_SOURCES = 1_000_000


@strict
class SkyModel:
    """Sources, beam, pointing, noise and constraints; frozen, and equal to its TOML file.

    Parameters
    ----------
    sources : sequence of PointSource and GaussianSource
    images : sequence of ImageTerm, optional
        With images there may be no sources.
    ref_freq : frequency, optional
        For spectra of sources that give none of their own.
    centre : text "ra dec", or (ra, dec) in rad, optional
        Where east and north offsets start; default the phase centre of the first partition.
    beam : Cos3Beam, GaussianBeam or AiryBeam, optional
    pointing : Pointing, optional
    noise : Noise
        Default: one fitted factor per partition.
    constraints : sequence of Order, Bounds, Condition, or functions

    Raises
    ------
    ModelError
        Names used twice, ties to nothing, spectra without reference frequency, and the like.
    """

    label: ClassVar[str] = "sky"
    sources: Any
    _: KW_ONLY
    images: Any = ()
    ref_freq: QuantityLike = None
    centre: Any = None
    beam: Any = None
    pointing: Any = None
    noise: Any = Noise()
    constraints: Any = ()

    def __post_init__(self) -> None:
        self._check_sources()
        if self.ref_freq is not None:
            ref_freq = under("ref_freq", quantity, self.ref_freq, FREQUENCY)
            if not isinstance(ref_freq, Fixed) or not ref_freq.value > 0:
                raise ModelError(f"ref_freq: must be a positive number, found {shown(self.ref_freq)}")
            object.__setattr__(self, "ref_freq", ref_freq)
        if self.centre is not None:
            object.__setattr__(self, "centre", under("centre", parse_direction, self.centre))
        self._check_kind("beam", (Cos3Beam, GaussianBeam, AiryBeam))
        self._check_kind("pointing", (Pointing,))
        if self.pointing is not None and self.beam is None:
            raise ModelError("pointing: pointing errors have no effect without a beam; give one")
        if not isinstance(self.noise, Noise):
            raise ModelError(f"noise: expected Noise, found {shown(self.noise)}")
        object.__setattr__(self, "constraints", under("constraints", read_constraints, self.constraints))
        self._check_numbers()

    def _check_sources(self) -> None:
        if isinstance(self.sources, (PointSource, GaussianSource)):
            object.__setattr__(self, "sources", (self.sources,))
        if isinstance(self.images, ImageTerm):
            object.__setattr__(self, "images", (self.images,))
        if not isinstance(self.images, Sequence):
            raise ModelError(f"images: expected a list of ImageTerm, found {shown(self.images)}")
        least = 0 if self.images else 1
        if not isinstance(self.sources, Sequence) or not least <= len(self.sources) <= MAX_SOURCES:
            raise ModelError(
                f"sources: expected a list of {least} to {MAX_SOURCES} sources, found {shown(self.sources)}"
            )
        seen: set[str] = set()
        for source in self.sources:
            if isinstance(source, ImageTerm):
                raise ModelError(
                    f"sources: {source.name!r} is an image; give it as SkyModel(sources, images=[...])"
                )
            if not isinstance(source, (PointSource, GaussianSource)):
                raise ModelError(f"sources: expected PointSource or GaussianSource, found {shown(source)}")
            if source.name in seen:
                raise ModelError(
                    f"source {source.name!r}: another source has this name; names must be unique"
                )
            seen.add(source.name)
        for image in self.images:
            if not isinstance(image, ImageTerm):
                raise ModelError(f"images: expected ImageTerm, found {shown(image)}")
            if image.name in seen:
                raise ModelError(f"image {image.name!r}: something else has this name; names must be unique")
            seen.add(image.name)
        object.__setattr__(self, "sources", tuple(self.sources))
        object.__setattr__(self, "images", tuple(self.images))

    def _check_numbers(self) -> None:
        """What can be said without data: ties, spectra, sizes."""
        slots = Slots()
        layout = self.layout(slots)
        if not slots.is_tied_to(RESERVED):
            Implied(slots.resolve()).shapes(layout)

    def _check_kind(self, key: str, kinds: tuple[type, ...]) -> None:
        value = getattr(self, key)
        if value is not None and not isinstance(value, kinds):
            names = ", ".join(kind.__name__ for kind in kinds)
            raise ModelError(f"{key}: expected {names}, found {shown(value)}")

    def layout(self, slots: Slots) -> SourceLayout:
        """Put all quantities of the sources into `slots`; says where the kernels' arrays find them."""
        ref_freq = in_si(self.ref_freq, FREQUENCY) if self.ref_freq is not None else None
        return SourceLayout(self.sources, ref_freq, slots, self.images)

    def origin(self, partitions: Sequence[PartitionView]) -> Centre:
        """Where offsets start, rad."""
        return self.centre if self.centre is not None else partitions[0].phase_centre

    def bind(self, partitions: Sequence[PartitionView]) -> BoundModel:
        """The model with everything that the data decide: parameters, and theta to source arrays.

        Parameters
        ----------
        partitions : sequence of PartitionView
            One per partition of the observation.

        Raises
        ------
        ModelError
            Numbers that cannot be, sources below the horizon of a tangent plane, unknown antennas,
            brightness lists of another length than the times, constraints that leave nothing.
        """
        from biro.models.bound.model import BoundModel

        return BoundModel(self, partitions)

    def to_toml(self) -> str:
        """The text of the model file that reads back as this model.

        Raises
        ------
        ModelError
            Something that only Python can say: a frozen scipy distribution, a function.
        """
        from biro.models.files.toml import to_toml

        return to_toml(self)
