"""A prior that stands for one parameter per antenna and segment: of time, of channels, of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import ClassVar

from biro.models.components.noise import GROUPINGS
from biro.models.errors import ModelError
from biro.models.quantities import units
from biro.models.quantities.parameter import Fixed, quantity, read_entry
from biro.models.quantities.prior import LogNormal, Normal, Prior, Uniform
from biro.models.quantities.strict import Entry, did_you_mean, short_repr, strict
from biro.models.quantities.units import NUMBER, Dimension

TIMES = ("track", "scan", "integration")
"""Segments of time that need no length."""
GROUPS = GROUPINGS
MAX_BLOCKS = 10_000
_OWN = ("per", "correlated", "sd", "chan_blocks")


@strict
class PerSegment:
    """One parameter with this prior for each antenna and segment.

    Parameters
    ----------
    prior : Prior
    per : text or list of texts, default "track"
        Segments of time: "track" (one), "scan", "integration", or a length such as "10 min". Beside it which
        partitions share parameters: "spw" (the default: those of one spectral window), "field", "partition"
        or "all", as in ["scan", "all"].
    correlated : time, or Prior of one, optional
        Time over which neighbouring segments are alike: a Gauss-Markov process with correlation
        exp(-dt/correlated) of normal priors and of ln x of log-normal ones; of a phase that is uniform over
        the circle, steps of variance 2 dt/correlated, so that exp(i phase) has that correlation. With a prior
        it is fitted: one parameter for all antennas.
    sd : Prior, optional
        Of the standard deviation of the normal or log-normal `prior`, which then is fitted: one parameter for
        all antennas; the number in `prior` does not count.
    chan_blocks : int, default 1
        Blocks of neighbouring channels, as equal as can be, with parameters of their own.
    """

    label: ClassVar[str] = "gain"
    prior: Entry
    _: KW_ONLY
    per: Entry = "track"
    correlated: Entry = None
    sd: Entry = None
    chan_blocks: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            raise ModelError(f"prior: expected a prior, found {short_repr(self.prior)}")
        given = (self.per,) if isinstance(self.per, str) else self.per
        if not isinstance(given, (list, tuple)) or not given or not all(isinstance(x, str) for x in given):
            raise ModelError(f"per: expected a text or a list of texts, found {short_repr(self.per)}")
        object.__setattr__(self, "per", given[0] if len(given) == 1 else tuple(given))
        groups = [word for word in given if word in GROUPS]
        times = [word for word in given if word not in GROUPS]
        if len(groups) > 1 or len(times) > 1:
            raise ModelError(
                f"per: one length of time and one of {', '.join(GROUPS)}, found {', '.join(given)}"
            )
        object.__setattr__(self, "group", groups[0] if groups else "spw")
        object.__setattr__(self, "time", _time(times[0]) if times else "track")
        if not 1 <= self.chan_blocks <= MAX_BLOCKS:
            raise ModelError(f"chan_blocks: from 1 to {MAX_BLOCKS}, found {self.chan_blocks}")
        if isinstance(self.correlated, Mapping):
            made = read_entry("correlated", quantity, self.correlated, units.TIME)
            object.__setattr__(self, "correlated", made)
        if self.correlated is not None:
            self._check_correlated()
        if self.sd is not None:
            self._check_sd()

    group: ClassVar[str]
    time: ClassVar[str | float]

    @property
    def coherence(self) -> float | Prior | None:
        """`correlated`: s, or a prior."""
        if self.correlated is None or isinstance(self.correlated, Prior):
            return self.correlated
        return _seconds("correlated", self.correlated)

    @property
    def is_circle(self) -> bool:
        """Whether the prior is uniform over exactly one turn."""
        prior = self.prior
        if not isinstance(prior, Uniform) or not prior.unit:
            return False
        return abs(units.convert(prior.high - prior.low, prior.unit, "deg") / 360.0 - 1.0) < 1e-12

    @property
    def is_process(self) -> bool:
        """Whether parameters are standard normal steps, of which values are made."""
        return self.correlated is not None or self.sd is not None

    def _check_sd(self) -> None:
        """Refuse standard deviations of other priors, and those that are no prior above 0."""
        if not isinstance(self.prior, (Normal, LogNormal)):
            raise ModelError(f"sd: of a normal or log-normal prior, found {self.prior.family}")
        if not isinstance(self.sd, Prior):
            raise ModelError(f"sd: expected a prior, found {short_repr(self.sd)}")
        if not isinstance(self.sd, LogNormal) and self.sd.support[0] < 0.0:
            raise ModelError(
                "sd: a standard deviation is above 0, so its prior must be, too: half-normal, log-uniform, "
                "or "
                f"another with low >= 0, found {self.sd.family}"
            )

    def _check_correlated(self) -> None:
        if isinstance(self.correlated, Prior):
            _check_prior(self.correlated)
        else:
            _seconds("correlated", self.correlated)
        if self.time == "track":
            raise ModelError('correlated: there is one segment; write per = "scan", "integration" or a time')
        if not (isinstance(self.prior, (Normal, LogNormal)) or self.is_circle):
            raise ModelError(
                "correlated: needs a normal or log-normal prior, or a phase that is uniform over 360 deg, "
                f"found {self.prior.family}"
            )


def _time(word: str) -> str | float:
    if word in TIMES:
        return word
    try:
        return _seconds("per", word)
    except ModelError:
        known = (*TIMES, *GROUPS)
        raise ModelError(
            f"per: {', '.join(TIMES)}, a time such as '10 min', or one of {', '.join(GROUPS)}, "
            f"found {short_repr(word)}{did_you_mean(word, known)}"
        ) from None


def _check_prior(prior: Prior) -> None:
    """Refuse priors of correlation times that are no times, or reach to 0 or below."""
    read_entry("correlated", units.factor, prior.unit, units.TIME)
    if not isinstance(prior, LogNormal) and prior.support[0] <= 0.0:
        raise ModelError(
            "correlated: a correlation time is above 0, so its prior must be, too: log-uniform, log-normal, "
            "or "
            f"another with low > 0, found {prior.family}"
        )


def _seconds(key: str, value: Entry) -> float:
    fixed = read_entry(key, quantity, value, units.TIME)
    seconds = fixed.value * units.factor(fixed.unit, units.TIME) if isinstance(fixed, Fixed) else 0.0
    if not seconds > 0.0:
        prior = ", or a prior of one" if key == "correlated" else ""
        raise ModelError(f"{key}: expected a time above 0 such as '10 min'{prior}, found {short_repr(value)}")
    return seconds


def read_per_segment(value: Entry, dimension: Dimension, defaults: Mapping[str, Entry]) -> PerSegment | Fixed:
    """What a person wrote for a quantity of antennas and segments: a number, or a prior with its segments.

    Parameters
    ----------
    value : number, text, Prior, PerSegment, or a table with `prior` and keys of `PerSegment`
    dimension : Dimension
    defaults : mapping of str to number or text
        Numbers of the prior, by the names of families and keys "uniform.low", that need not be given.

    Raises
    ------
    ModelError
        Anything else, a tie for instance.
    """
    if isinstance(value, Mapping) and "prior" in value:
        table = dict(value)
        own = {key: table.pop(key) for key in _OWN if key in table}
        for name, number in defaults.items():
            family, _, key = name.partition(".")
            if table["prior"] == family:
                table.setdefault(key, number)
        if isinstance(own.get("sd"), Mapping):
            of_sd = NUMBER if table["prior"] == LogNormal.family else dimension
            own["sd"] = made = read_entry("sd", quantity, own["sd"], of_sd)
            table["sd"] = f"1 {made.unit}" if isinstance(made, Prior) and made.unit else 1.0
        elif "sd" in own:
            table["sd"] = own.pop("sd")
        value = PerSegment(quantity(table, dimension), **own)
    elif isinstance(value, Prior):
        value = PerSegment(value)
    if isinstance(value, PerSegment):
        units.factor(value.prior.unit, dimension)
        if value.sd is not None:
            of_sd = NUMBER if isinstance(value.prior, LogNormal) else dimension
            read_entry("sd", units.factor, value.sd.unit, of_sd)
        return value
    made = quantity(value, dimension)
    if not isinstance(made, Fixed):
        raise ModelError("gains cannot be tied; give a number or a prior")
    return made
