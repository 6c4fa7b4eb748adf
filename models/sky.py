"""The sky model that a user writes, as a file or in Python."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping, Sequence

from biro.models.bound.marginalised import check_marginalised, with_means
from biro.models.bound.model import BoundModel
from biro.models.bound.prior.implied import Implied
from biro.models.bound.slots import ModelSlots
from biro.models.bound.source_layout import SourceLayout
from biro.models.components.beam_cube import AntennaBeams, BeamCube
from biro.models.components.image_term import ImageTerm
from biro.models.components.partition_view import PartitionView
from biro.models.components.sky import SkyDescription
from biro.models.components.source import RESERVED, PointSource, Source
from biro.models.components.toml_text import to_toml
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed
from biro.models.quantities.prior import Prior
from biro.models.quantities.strict import Entry, strict


@strict
class SkyModel(SkyDescription):
    """Sources, what the instrument is, noise and constraints; frozen, and equal to its TOML file.

    Parameters
    ----------
    sources : sequence of PointSource, GaussianSource, RingSource and the like
    images : sequence of ImageTerm, optional
        An `ImagePrior` among them becomes one of `image_priors`. With images there may be no sources; a
        model of a beam alone says through what `biro.find_sources` sees.
    image_priors : sequence of ImagePrior, optional
        Images whose pixels are fitted, by `biro.fit_image`; they may be given among the images.
    populations : sequence of Population, optional
        Sources whose number is inferred.
    ref_freq : frequency, optional
        For spectra of sources that give none of their own.
    centre : text "ra dec", or (ra, dec) in rad, optional
        Where east and north offsets start; default the phase centre of the first partition.
    centre_error : angle, optional
        A phase centre of the data that is closer to `centre` is equal to it: offsets start there.
    beam : Cos3Beam, GaussianBeam, AiryBeam, or a beam of Jones matrices, optional
        These are FitsBeam, KatBeam, DishBeam, ZernikeBeam, EveryBeam and FunctionBeam.
    pointing : Pointing, optional
    feeds : Feeds, optional
        Rotation of the feeds, which is not applied by default.
    leakage : Leakage, optional
    gain : Gain or list of Gain, optional
        Several: their product.
    noise : Noise
        Default: one fitted factor per partition.
    constraints : sequence of Order, Bounds, Condition, or functions

    Raises
    ------
    ModelError
        Names used twice, ties to nothing, spectra without reference frequency, and the like.
    """

    def __repr__(self) -> str:
        n, n_image = len(self.sources), len(self.images) + len(self.image_priors)
        images = f" and {n_image} image{'s' * (n_image != 1)}" * bool(n_image)
        more = "".join(f" and population {each.name}" for each in self.populations)
        return f"<SkyModel of {n} source{'s' * (n != 1)}{images}{more}; to_toml() is its file>"

    def _repr_html_(self) -> str:
        try:
            text = self.to_toml()
        except ModelError:  # a function or a frozen distribution, which no file can say
            text = repr(self)
        return f"<pre>{html.escape(text)}</pre>"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_marginalised(self)
        self._check_numbers()
        for population in self.populations:
            placed = population.with_place("0 deg", "0 deg")
            made = [placed.source(i, kind) for i, kind in enumerate(placed.types, start=1)]
            # Raises what its sources lack in this model, such as a reference frequency.
            dataclasses.replace(self, sources=(*self.sources, *made), populations=(), constraints=())

    def _check_numbers(self) -> None:
        """Check what can be checked without data: ties, spectra, sizes."""
        slots = ModelSlots()
        layout = SourceLayout(self, slots)
        if not slots.is_tied_to(RESERVED):
            Implied(slots.resolve()).shapes(layout)

    def with_means(self) -> SkyModel:
        """The model with means of priors in place of what is marginalised; itself where nothing is."""
        return with_means(self)

    def at(self, values: Mapping[str, float]) -> SkyModel:
        """The model with numbers in place of the priors of its sources and images.

        What belongs to the instrument and the noise stays as it is, and constraints are left out.

        Parameters
        ----------
        values : mapping of str to float
            By name of the parameter, in the unit of its prior: such as those of the best fit.

        Raises
        ------
        ModelError
            A parameter of a source or an image has no value.
        """
        sources, images = ([_at(one, values) for one in some] for some in (self.sources, self.images))
        return dataclasses.replace(self, sources=sources, images=images, constraints=())

    def with_number(self, numbers: Mapping[str, int | Sequence[str]]) -> SkyModel:
        """The model with a given number of sources in place of its populations.

        A sky without any source gets one of 0 Jy, whose name is that of the population and 0.

        Parameters
        ----------
        numbers : mapping of str to int or sequence of str
            By name of the population: the number of its sources, or the type of each, ["point", "gaussian"].

        Raises
        ------
        ModelError
            Other names than those of the populations, a number beyond the prior, a number alone where the
            population has several types, or a place that depends on the data
            (`biro.imaging.population_field.with_places`).
        """
        names = [population.name for population in self.populations]
        if sorted(numbers) != sorted(names):
            raise ModelError(
                f"populations of the model: {', '.join(names) or 'none'}; numbers are given for "
                f"{', '.join(map(str, numbers)) or 'none'}"
            )
        made = [source for each in self.populations for source in each.sources(numbers[each.name])]
        if self.populations and not (made or self.sources or self.images or self.image_priors):
            made = [PointSource(f"{names[0]}0", east="0 deg", north="0 deg", I="0 Jy")]
        return dataclasses.replace(self, sources=(*self.sources, *made), populations=())

    def bind(
        self,
        partitions: Sequence[PartitionView],
        beam: BeamCube | AntennaBeams | None = None,
        *,
        without_gains: bool = False,
    ) -> BoundModel:
        """The model with everything that the data decide: parameters, and theta to source arrays.

        Parameters
        ----------
        partitions : sequence of PartitionView
            One per partition of the observation.
        beam : BeamCube or AntennaBeams, optional
            What a beam of files holds (`biro.read_beam`), or a function was sampled to.
        without_gains : bool
            Whether to leave out the gains that have priors. Standard deviations and correlation times that
            are fitted of these priors stay parameters.

        Raises
        ------
        ModelError
            Numbers that cannot be, sources below the horizon of a tangent plane, unknown antennas,
            brightness lists of another length than the times, constraints that leave nothing.
        """
        return BoundModel(self, partitions, beam, without_gains=without_gains)

    def to_toml(self) -> str:
        """The text of the model file that reads back as this model.

        Raises
        ------
        ModelError
            Something that only Python can say: a frozen scipy distribution, a function.
        """
        return to_toml(self)


def _at(part: Source | ImageTerm, values: Mapping[str, float]) -> Source | ImageTerm:
    given = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    # The arguments of a user's own function are parameters of the source itself.
    own = ("parameters", "angles")
    changed = {
        key: _fixed(value, part.name if key in own else f"{part.name}.{key}", values)
        for key, value in given.items()
    }
    return dataclasses.replace(part, **changed)


def _fixed(value: Entry, name: str, values: Mapping[str, float]) -> Entry:
    if isinstance(value, Prior):
        if name not in values:
            raise ModelError(f"{name}: there is no value of this parameter")
        return Fixed(float(values[name]), value.unit)
    if isinstance(value, tuple):
        names = [name] if len(value) == 1 else [f"{name}[{i}]" for i in range(len(value))]
        return tuple(_fixed(one, each, values) for one, each in zip(value, names, strict=True))
    if isinstance(value, Mapping):
        return {key: _fixed(one, f"{name}.{key}", values) for key, one in value.items()}
    return value
