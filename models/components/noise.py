"""How noise is distributed, and what the stated noise is multiplied by and added to (physics: section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import ClassVar

from biro.models.components.antenna_terms.per_antenna import read_own
from biro.models.components.partition_view import PartitionView
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, Quantity, QuantityLike, quantity, read_entry, series
from biro.models.quantities.prior import LogUniform, Uniform
from biro.models.quantities.strict import Entry, did_you_mean, short_repr, strict
from biro.models.quantities.units import FLUX, NUMBER, Dimension

GROUPINGS = ("partition", "field", "spw", "all")
"""Which partitions of the data share a quantity."""
SPLITS = ("hands", "correlation")
"""Groupings that split partitions before a model is bound to them."""
PER = (*GROUPINGS, *SPLITS, "antenna")
DISTRIBUTIONS = ("gaussian", "student-t")
CORRELATIONS = ("time", "chan")
"""Along what the noise of neighbouring samples may be correlated."""
LOWEST, HIGHEST = 1e-3, 1e3
"""Ends of the prior of a noise factor that no entry gives, where nothing is known of the data."""
_DOF = LogUniform(1.0, 1000.0)
_OF_CHANNELS: dict[str, QuantityLike] = {"rho": 0.0, "smoothing": Uniform(0.0, 1.0 / 3.0)}


@strict
class Noise:
    """sigma -> factor sigma, for each group of data.

    Parameters
    ----------
    factor : number, optional
        A prior stands for one parameter per group. By default a log-uniform prior over 1e-3 .. 1e3, which a
        likelihood widens where the scatter of the data is far from what their weights say.
    per : "partition", "hands", "correlation", "field", "spw", "all" or "antenna", default "partition"
        "hands" is one group for the parallel hands of each partition, and another for its cross hands,
        "correlation" one for each correlation: data are split so before the model is bound to them.
        "antenna" makes s_p of each antenna, of system equivalent flux density: the stated noise of a baseline
        is multiplied by sqrt(s_p s_q). A list of "antenna" and another makes those of each such group.
    distribution : "gaussian" or "student-t", default "gaussian"
        Of each complex correlation; Student's t in two dimensions is for data with outliers.
    dof : number, optional
        Degrees of freedom of Student's t, above 0: the fewer, the more outliers. By default a log-uniform
        prior over 1 .. 1000. A prior stands for one parameter per group.
    systematic : number, default 0
        Fraction f of its amplitude that each visibility is off by on its own, not by gains of antennas:
        (f |V|)^2, with the amplitude of the model, is added to sigma^2. The factor multiplies a number that
        stands alone, too (`factor_of_all`); otherwise it is that of the stated noise alone.
    additive : flux density, default 0
        Noise a that each visibility has beside the stated one: a^2 is added to sigma^2.
    edges : list of lengths, optional
        Of classes of projected baseline length, in metres ("1 km") or in wavelengths at the mean frequency
        ("20 klambda"), ascending. `systematic` and `additive` then have one value for each class: a prior
        makes one parameter each, and a list gives each.
    antenna : {name: {"factor": ...}}
        Antennas that have a factor of their own, where factors are those of antennas.
    correlation : "time" or "chan", optional
        Noise is correlated between neighbouring times of each baseline, channel and correlation, or between
        neighbouring channels of each row and correlation, in the same way in all partitions. By default all
        samples are independent.
    rho : number from 0 to below 1, optional
        Correlation of the noise at the median spacing of times (rho^(dt / spacing) at others), or of
        neighbouring channels before these were smoothed. By default a uniform prior over 0 .. 1 for "time",
        0 for "chan".
    smoothing : number from -0.5 to 0.5, optional
        h of channels that were smoothed with the weights (h, 1 - 2h, h): 0.25 is Hanning smoothing, 1/3 the
        mean of three. By default a uniform prior over 0 .. 1/3; for "chan" alone.
    """

    label: ClassVar[str] = "noise"
    factor: QuantityLike = None
    per: Entry = "partition"
    distribution: str = "gaussian"
    dof: QuantityLike = None
    systematic: Entry = None
    additive: Entry = None
    edges: Entry = None
    antenna: Entry = None
    correlation: Entry = None
    rho: QuantityLike = None
    smoothing: QuantityLike = None

    def __post_init__(self) -> None:
        read_factor = partial(quantity, dimension=NUMBER)
        if self.factor is not None:
            object.__setattr__(self, "factor", read_entry("factor", read_factor, self.factor))
        object.__setattr__(self, "antenna", read_own(self.antenna, {"factor": read_factor}))
        _check_per(self.per)
        _check_word("distribution", self.distribution, DISTRIBUTIONS)
        if self.antenna and not self.of_antennas:
            raise ModelError(f'antenna: factors of antennas need per = "antenna", found {self.per!r}')
        object.__setattr__(self, "edges", _read_edges(self.edges))
        for key, dimension in (("systematic", NUMBER), ("additive", FLUX)):
            if getattr(self, key) is not None:
                object.__setattr__(
                    self, key, read_entry(key, self._of_classes, getattr(self, key), dimension)
                )
        for fraction in self.systematic or ():
            if isinstance(fraction, Fixed) and not 0.0 <= fraction.value < 1.0:
                raise ModelError(f"systematic: a fraction from 0 to below 1, found {fraction.value:g}")
        if self.edges and not (self.systematic or self.additive):
            raise ModelError("edges: need systematic, additive or both")
        self._check_distribution()
        self._check_correlation()

    def _check_correlation(self) -> None:
        given = [key for key in ("rho", "smoothing") if getattr(self, key) is not None]
        if self.correlation is None:
            if given:
                raise ModelError(f'{given[0]}: is only for correlation = "time" or "chan", which is not set')
            return
        _check_word("correlation", self.correlation, CORRELATIONS)
        if self.has_terms or self.distribution != "gaussian":
            raise ModelError(
                f'correlation = "{self.correlation}" is only for Gaussian noise with one factor of all '
                "baselines: "
                'remove distribution, per = "antenna", additive, edges, and the prior of systematic; or '
                "remove correlation"
            )
        if self.correlation == "time" and "smoothing" in given:
            raise ModelError('smoothing: is only for correlation = "chan"')
        default = {"rho": Uniform(0.0, 1.0)} if self.correlation == "time" else _OF_CHANNELS
        for key, value in default.items():
            own = value if getattr(self, key) is None else getattr(self, key)
            object.__setattr__(self, key, read_entry(key, quantity, own, NUMBER))
        if isinstance(self.rho, Fixed) and self.rho.value == 1.0:
            raise ModelError("rho: below 1, at which all samples of a sequence have the same noise, found 1")

    def _check_distribution(self) -> None:
        if self.distribution == "student-t":
            if self.of_antennas or self.additive is not None or self.edges:
                raise ModelError(
                    'distribution = "student-t" is only for one factor of all baselines: remove '
                    'per = "antenna", additive and edges'
                )
            dof = _DOF if self.dof is None else self.dof
            object.__setattr__(self, "dof", read_entry("dof", quantity, dof, NUMBER))
        elif self.dof is not None:
            raise ModelError('dof: is only for distribution = "student-t", which is not set')

    def _of_classes(self, value: Entry, dimension: Dimension) -> tuple[Quantity, ...]:
        """One quantity, or one for each class of baseline length."""
        made = series(value, dimension)
        if len(made) not in (1, self.n_class):
            raise ModelError(f"a list has one element for each of {self.n_class} classes, found {len(made)}")
        return made

    @property
    def n_class(self) -> int:
        """Classes of baseline length."""
        return 1 + len(self.edges or ())

    @property
    def classes(self) -> list[str]:
        """Names of the classes of baseline length; "" of one alone."""
        if not self.edges:
            return [""]
        edges = [edge if isinstance(edge, str) else f"{edge:g} m" for edge in self.edges]
        between = [f"{low} .. {high}" for low, high in pairwise(edges)]
        return [f"below {edges[0]}", *between, f"above {edges[-1]}"]

    @property
    def of_antennas(self) -> bool:
        """Whether factors are those of antennas."""
        return self.per == "antenna" or (not isinstance(self.per, str) and "antenna" in self.per)

    @property
    def grouping(self) -> str:
        """Which partitions share a factor: one of `GROUPINGS` or `SPLITS`."""
        if isinstance(self.per, str):
            return "all" if self.per == "antenna" else self.per
        return next((word for word in self.per if word != "antenna"), "all")

    @property
    def has_terms(self) -> bool:
        """Whether the noise of baselines differs from the stated one by more than a factor of all."""
        return self.of_antennas or self.additive is not None or bool(self.edges) or self.follows_model

    @property
    def factor_of_all(self) -> bool:
        """Whether the factor of a partition multiplies a systematic error, too."""
        alone = not (self.of_antennas or self.edges or self.additive is not None)
        return alone and all(isinstance(one, Fixed) for one in self.systematic or ())

    @property
    def fixed_fraction(self) -> float:
        """A systematic error that is a number and stands alone; else 0."""
        return float(self.systematic[0].value) if self.systematic and self.factor_of_all else 0.0

    @property
    def follows_model(self) -> bool:
        """Whether a systematic error makes the noise depend on the visibilities of the model."""
        return any(not isinstance(one, Fixed) or one.value != 0.0 for one in self.systematic or ())

    def factor_of(self, antenna: str) -> Quantity:
        """The factor of an antenna."""
        own = self.antenna.get(antenna, {}).get("factor", self.factor)
        return LogUniform(LOWEST, HIGHEST) if own is None else own

    def of_class(self, key: str) -> list[Quantity]:
        """`systematic` or `additive` of each class; nothing where it is not given."""
        given = list(getattr(self, key) or ())
        return given * self.n_class if len(given) == 1 else given

    def with_factor_between(self, low: float, high: float) -> Noise:
        """The noise with its factor fitted with a log-uniform prior over low .. high."""
        return replace(self, factor=LogUniform(low, high))

    def groups(self, partitions: Sequence[PartitionView]) -> list[str]:
        """The group that each partition belongs to; "" where all belong to one."""
        return grouped(self.grouping, partitions)


def grouped(per: str, partitions: Sequence[PartitionView]) -> list[str]:
    """The group that each partition belongs to by one of `GROUPINGS` or `SPLITS`; "" where all are one."""
    if per == "all":
        return [""] * len(partitions)
    key = per if per in ("field", "spw") else "label"
    groups = [str(getattr(partition, key)) for partition in partitions]
    return groups if len(set(groups)) > 1 else [""] * len(partitions)


def _check_word(key: str, found: object, known: Sequence[str]) -> None:
    if found not in known:
        raise ModelError(
            f"{key}: one of {', '.join(known)}, found {short_repr(found)}{did_you_mean(found, known)}"
        )


def _check_per(per: Entry) -> None:
    words = per if isinstance(per, (list, tuple)) else [per]
    for word in words:
        _check_word("per", word, PER)
    if len(words) > 1 and not (len(words) == 2 and list(words).count("antenna") == 1):
        raise ModelError(f'per: one word, or a list of "antenna" and another, found {short_repr(per)}')
    if not words:
        raise ModelError("per: a list of words, found an empty one")


def _read_edges(value: Entry) -> tuple[str | float, ...] | None:
    """The edges of classes of baseline length as they were written."""
    if value is None:
        return None
    if isinstance(value, (str, int, float)):
        value = (value,)
    if not isinstance(value, (list, tuple)) or not value:
        raise ModelError(f'edges: a list of lengths such as ["100 m", "1 km"], found {short_repr(value)}')
    for edge in value:
        if isinstance(edge, bool) or not isinstance(edge, (str, int, float)):
            raise ModelError(f'edges: lengths such as "100 m" or "20 klambda", found {short_repr(edge)}')
    return tuple(value)
