"""A population: sources of one kind whose number is inferred, with the priors that all of them share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from biro.models.components.source import GaussianSource, PointSource, Source, check_name
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, QuantityLike, quantity, read_entry
from biro.models.quantities.prior import Prior
from biro.models.quantities.strict import Entry, did_you_mean, short_repr, strict
from biro.models.quantities.tie import Tie
from biro.models.quantities.units import ANGLE

Array = NDArray[np.float64]
MAX_NUMBER = 1000
"""Largest number of sources that a population may have."""
FIELD = "field"
"""`place` of a population whose sources may be anywhere in the field of the data."""
TYPES: dict[str, type[Source]] = {"point": PointSource, "gaussian": GaussianSource}
"""Types that the sources of a population may have."""


def log_share(counts: ArrayLike) -> Array:
    """ln P of a sequence of types, whose shares are integrated over: float64 (...).

    Of k sources of m types, n_j of the j-th, with shares of density Dirichlet(1, ..., 1), the probability of
    one sequence is the integral of the product of p_j^n_j, (m - 1)! prod_j n_j! / (k + m - 1)!. Summed over
    sequences, all counts (n_1, ..., n_m) of k sources have the same probability.

    Parameters
    ----------
    counts : int (..., n_type)
        n_j of each type of `Population.types`.
    """
    n = np.asarray(counts, dtype=np.float64)
    m = n.shape[-1]
    log_products = special.gammaln(n + 1.0).sum(axis=-1)
    return np.asarray(special.gammaln(m) + log_products - special.gammaln(n.sum(axis=-1) + m))


@strict
class NumberPrior:
    """Prior of a number of sources k, normalised over low <= k <= high.

    Parameters
    ----------
    prior : "poisson", "uniform" or "jeffreys"
        P(k) proportional to mean^k / k!, to 1, or to 1 / (k + 1).
    high : int
        1 to 1000.
    low : int, default 0
    mean : float
        Of "poisson" alone, before it is cut off; above 0 and at most high.
    """

    label: ClassVar[str] = "number"
    families: ClassVar[tuple[str, ...]] = ("poisson", "uniform", "jeffreys")
    prior: str
    _: KW_ONLY
    mean: Entry = None
    low: Entry = 0
    high: Entry = None

    def __post_init__(self) -> None:
        if self.prior not in self.families:
            hint = did_you_mean(self.prior, self.families)
            raise ModelError(
                f"prior: one of {', '.join(self.families)}, found {short_repr(self.prior)}{hint}"
            )
        if self.high is None:
            raise ModelError("'high' is missing: the largest number of sources, such as high = 60")
        for key, least in (("low", 0), ("high", 1)):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_NUMBER:
                raise ModelError(f"{key}: an integer of {least} to {MAX_NUMBER}, found {short_repr(value)}")
        if not self.low < self.high:
            raise ModelError(f"needs low < high, found low = {self.low}, high = {self.high}")
        self._check_mean()

    def _check_mean(self) -> None:
        if self.prior != "poisson":
            if self.mean is not None:
                raise ModelError(f'mean: needs prior = "poisson", found "{self.prior}"; leave mean out')
            return
        mean = self.mean
        if isinstance(mean, bool) or not isinstance(mean, int | float) or not 0.0 < mean < math.inf:
            raise ModelError(f"mean: expected a number above 0, found {short_repr(mean)}")
        if mean > self.high:
            raise ModelError(
                f"high: must be at least the mean, {mean:g}, found {self.high}; 2 mean + 10 cuts nothing off"
            )
        object.__setattr__(self, "mean", float(mean))

    def log_pmf(self, k: ArrayLike) -> Array:
        """ln P(k), float64 of the shape of k; -inf outside low .. high.

        Parameters
        ----------
        k : int, any shape
        """
        numbers = np.asarray(k)
        inside = (numbers >= self.low) & (numbers <= self.high) & (numbers == np.floor(numbers))
        norm = special.logsumexp(self._relative(np.arange(self.low, self.high + 1)))
        return np.where(inside, self._relative(np.where(inside, numbers, self.low)) - norm, -np.inf)

    def _relative(self, k: Array) -> Array:
        """ln P(k) but for a constant."""
        k = np.asarray(k, dtype=np.float64)
        if self.prior == "poisson":
            return np.asarray(k * math.log(self.mean) - special.gammaln(k + 1.0))
        return -np.log1p(k) if self.prior == "jeffreys" else np.zeros(k.shape)


@strict
class Population:
    """Sources that have priors in common, and whose number is inferred with everything else.

    Parameters
    ----------
    name : str
        Unique among sources, images and populations. The sources are called name1, name2, ...
    types : list of "point", "gaussian"; default ["point"]
        Of several types each has an unknown share of the sources, and every division of 1 into shares has
        the same density, Dirichlet(1, 1): see `log_share`.
    number : NumberPrior, or a table
    I : flux density or prior, not negative
        Of each source.
    place : "field", or a prior of an angle; default "field"
        A prior holds for the east and north offsets of each source from the centre of the model. "field" is
        a square about the phase centre that is as wide as the images of `biro image`; the data determine it:
        `biro.imaging.population_field.with_places`.
    east, north : angle or prior
        In place of `place`, where the two differ.
    Q, U, V, pol_fraction, pol_angle, v_fraction, spectral_index, rm, ref_freq
        Numbers or priors, as for `PointSource`.
    emaj, emin, ratio, pa, fwhm
        As for `GaussianSource`, if that is one of the types.

    Raises
    ------
    ModelError
        Names the key, what was found and what is allowed.
    """

    label: ClassVar[str] = "population"
    shape_keys: ClassVar[tuple[str, ...]] = GaussianSource.shape_keys
    name: str
    _: KW_ONLY
    types: Entry = ("point",)
    number: Entry
    I: QuantityLike
    place: Entry = None
    east: QuantityLike = None
    north: QuantityLike = None
    Q: QuantityLike = None
    U: QuantityLike = None
    V: QuantityLike = None
    pol_fraction: QuantityLike = None
    pol_angle: QuantityLike = None
    v_fraction: QuantityLike = None
    spectral_index: Entry = None
    rm: QuantityLike = None
    ref_freq: QuantityLike = None
    emaj: QuantityLike = None
    emin: QuantityLike = None
    ratio: QuantityLike = None
    pa: QuantityLike = None
    fwhm: QuantityLike = None

    def __post_init__(self) -> None:
        check_name(self.name)
        self._read_types()
        self._read_number()
        self._read_place()
        for kind in self.types:
            self._read_source(kind)

    def _read_types(self) -> None:
        types = (self.types,) if isinstance(self.types, str) else self.types
        if not isinstance(types, list | tuple) or not types:
            raise ModelError(f"types: expected a list of {', '.join(TYPES)}, found {short_repr(self.types)}")
        for kind in types:
            if not isinstance(kind, str) or kind not in TYPES:
                hint = did_you_mean(kind, TYPES)
                raise ModelError(f"types: one or more of {', '.join(TYPES)}, found {short_repr(kind)}{hint}")
        if len(set(types)) < len(types):
            raise ModelError(f"types: a type occurs twice in {short_repr(list(types))}")
        sizes = [key for key in self.shape_keys if getattr(self, key) is not None]
        if sizes and "gaussian" not in types:
            raise ModelError(f'{sizes[0]}: a point has no size; write types = ["gaussian"], or leave it out')
        object.__setattr__(self, "types", tuple(types))

    def _read_number(self) -> None:
        number = self.number
        if isinstance(number, Mapping):
            if "prior" not in number:
                raise ModelError(
                    f'number: expected a prior such as {{ prior = "uniform", high = 20 }}, '
                    f"found {short_repr(dict(number))}"
                )
            number = NumberPrior(**{str(key): value for key, value in number.items()})
        if not isinstance(number, NumberPrior):
            raise ModelError(
                'number: expected a prior such as { prior = "uniform", high = 20 }, '
                f"found {short_repr(number)}; a known number of sources is so many [[source]] tables"
            )
        object.__setattr__(self, "number", number)

    def _read_place(self) -> None:
        """Put offsets that are known into `east` and `north`, so that `place` is FIELD or None."""
        given = self.east is not None, self.north is not None
        if any(given) and self.place is not None:
            raise ModelError("place: is given twice, by itself and by east, north; leave one out")
        if any(given) and not all(given):
            raise ModelError("east and north go together; one is missing")
        if any(given):
            return
        if self.place is None or self.place == FIELD:
            object.__setattr__(self, "place", FIELD)
            return
        if isinstance(self.place, str):
            raise ModelError(
                f'place: "{FIELD}", or a prior of the east and north offsets, found {short_repr(self.place)}'
                f"{did_you_mean(self.place, (FIELD,))}"
            )
        offset = read_entry("place", quantity, self.place, ANGLE)
        if not isinstance(offset, Prior):
            raise ModelError(f'place: expected "{FIELD}" or a prior, found {short_repr(self.place)}')
        for key, value in (("east", offset), ("north", offset), ("place", None)):
            object.__setattr__(self, key, value)

    def _read_source(self, kind: str) -> None:
        """Read all quantities as those of a source are, and check them."""
        try:
            source = self._made(1, kind, {"east": Fixed(0.0, "rad"), "north": Fixed(0.0, "rad")})
        except ModelError as error:
            raise ModelError(str(error).removeprefix(f"source {self.name + '1'!r}: ")) from None
        for key in self._keys(kind):
            value = getattr(source, key)
            if value is not None and (key not in ("east", "north") or self.place is None):
                self._check_entry(key, value)
                object.__setattr__(self, key, value)

    def _check_entry(self, key: str, value: Entry) -> None:
        """Refuse what sources of one population cannot have: ties, light curves, and negative fluxes."""
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Tie):
                raise ModelError(
                    f"{key}: is tied to {one.to}; sources of a population have numbers and priors only"
                )
        if key in ("I", "Q", "U", "V") and len(value) > 1:
            raise ModelError(f"{key}: sources of a population are constant; give one number or prior")
        if key == "I":
            low = value[0].value if isinstance(value[0], Fixed) else value[0].support[0]
            if low < 0.0 or (isinstance(value[0], Fixed) and low == 0.0):
                raise ModelError(
                    f"I: must not be negative, found {short_repr(value[0])}; take a power-law, log-uniform, "
                    "uniform or half-normal prior"
                )

    def _keys(self, kind: str) -> list[str]:
        """The keys of a source that a population has."""
        given = {field.name for field in dataclasses.fields(self)}
        return [field.name for field in dataclasses.fields(TYPES[kind]) if field.name in given - {"name"}]

    def _made(self, i: int, kind: str, place: Mapping[str, QuantityLike]) -> Source:
        given = {key: getattr(self, key) for key in self._keys(kind)}
        if self.place == FIELD:
            given |= place
        return TYPES[kind](f"{self.name}{i}", **given)

    @property
    def source_names(self) -> tuple[str, ...]:
        """Names of all the sources that there may be."""
        return tuple(f"{self.name}{i}" for i in range(1, self.number.high + 1))

    def source(self, i: int, kind: str) -> Source:
        """The i-th source, with the priors of the population.

        Parameters
        ----------
        i : int
            From 1.
        kind : str
            One of `types`.

        Raises
        ------
        ModelError
            Another type, or a place that the data determine and that is not known yet.
        """
        if kind not in self.types:
            raise ModelError(f"population {self.name!r} has no source of type {short_repr(kind)}")
        if self.place == FIELD:
            raise ModelError(
                f'population {self.name!r}: place = "{FIELD}" depends on the data; '
                "biro.imaging.population_field.with_places(sky, observation) puts its priors in place"
            )
        return self._made(i, kind, {})

    def sources(self, kinds: int | Sequence[str]) -> tuple[Source, ...]:
        """The first sources: so many, or one of each of these types in turn; see `SkyModel.with_number`."""
        if isinstance(kinds, int | np.integer) and not isinstance(kinds, bool):
            number, each = int(kinds), self.types[:1] * int(kinds)
            if kinds > 0 and len(self.types) > 1:
                raise ModelError(
                    f"population {self.name!r} has several types; give that of each source, such as "
                    f"{list(self.types)}, in place of the number {kinds}"
                )
        elif isinstance(kinds, Sequence) and not isinstance(kinds, str):
            number, each = len(kinds), tuple(kinds)
        else:
            raise ModelError(
                f"population {self.name!r}: expected a number of sources or a list of their types, "
                f"found {short_repr(kinds)}"
            )
        if not 0 <= number <= self.number.high:
            raise ModelError(f"population {self.name!r} has 0 to {self.number.high} sources, found {number}")
        return tuple(self.source(i, kind) for i, kind in enumerate(each, start=1))

    def with_place(self, east: QuantityLike, north: QuantityLike) -> Population:
        """The population with these offsets, where `place` leaves them to the data; else itself."""
        if self.place != FIELD:
            return self
        return dataclasses.replace(self, place=None, east=east, north=north)
