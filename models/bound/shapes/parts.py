"""The sources of the kernels that a source with a shape of its own is made of."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from biro.models.bound.positions.motion import MotionSlots, motion_slots
from biro.models.bound.slots import ZERO, ModelSlots
from biro.models.bound.spectrum_slots import SpectrumSlots
from biro.models.components.fractions import FRACTIONS
from biro.models.components.light_curve import Times
from biro.models.components.shapes.custom import CustomSource
from biro.models.components.shapes.galaxies import CoreHaloSource, GradientGaussianSource, ShapeletSource
from biro.models.components.shapes.one_sided import CrescentSource, MRingSource
from biro.models.components.shapes.shaped import ShapedSource, ValueLimits
from biro.models.components.source import DIMENSIONS, LOCAL, GaussianSource, Source
from biro.models.quantities.parameter import Series
from biro.models.quantities.units import ANGLE, FLUX, NUMBER

POINT, GAUSSIAN, PROFILE = range(3)
# The names of the shapes in `rime_kernels.physics.profiles.CODES`, where they are not the user's.
_KERNEL_NAMES = {"limb-darkened-disc": "limb-darkened"}
# Those, and Gaussians, that are the same whichever way they are turned, where their axes are equal.
ROUND = (
    "",
    "core-halo",
    "disc",
    "ring",
    "limb-darkened",
    "annulus",
    "sphere",
    "exponential",
    "sersic",
    "beta-model",
)
N_PARAMETER = 8
_BLUR = 7
_SHAPELET_TERMS = 5
# Real and imaginary parts of three orders along a ring; from the fourth order on, another part.
_RING_NUMBERS = 6
HIGH_MRING = "high m-ring"
# What stands before the name of a function of the user.
CUSTOM = "custom:"


class Combination(NamedTuple):
    """A constant, and multiples of at most two slots: (factor, slot), ..."""

    constant: float = 0.0
    terms: tuple[tuple[float, int], ...] = ()


class Weight(NamedTuple):
    """The share constant + factor * slot of a part in the flux of its source."""

    constant: float
    factor: float
    slot: int


class SourceSlots:
    """The slots of one source."""

    kind: str = ""
    shape: list[int]
    by_ratio: bool = False
    turns: bool = False
    local: bool = False
    blur: int = ZERO
    numbers: tuple[Combination, ...] = ()
    weight: Weight | None = None

    def __init__(self, source: Source, ref_freq: float | None, slots: ModelSlots) -> None:
        self.name, self.owner, self.seen = source.name, source.name, source.beam
        self.rank = GAUSSIAN if isinstance(source, GaussianSource) else POINT
        self.limits: list[tuple[int, ValueLimits]] = []
        self.by_offset = source.ra is None
        keys = ("east", "north") if self.by_offset else ("ra", "dec")
        self.position = [self._one(source, key, slots) for key in keys]
        self.motion: MotionSlots | None = motion_slots(source, slots)
        self.stokes = {
            key: slots.add_series(self.name, key, series, FLUX) for key, series in source.light_curves()
        }
        self.times: Times | None = source.times
        self.between: str = source.between or "linear"
        self.fractions = {
            fraction: tuple(self._one(source, key, slots) for key in fraction.keys)
            for fraction in FRACTIONS
            if getattr(source, fraction.keys[0]) is not None
        }
        self.spectrum = SpectrumSlots(source, ref_freq, slots)
        if isinstance(source, ShapedSource | GaussianSource):
            self.local = source.frame == LOCAL
        if isinstance(source, GaussianSource):
            self._shape(source, slots)

    def _one(self, source: Source, key: str, slots: ModelSlots) -> int:
        return slots.add(self.name, key, getattr(source, key), DIMENSIONS[key])

    def _shape(self, source: GaussianSource, slots: ModelSlots) -> None:
        self.by_ratio = source.ratio is not None
        if source.fwhm is not None:
            fwhm = self._one(source, "fwhm", slots)
            self.shape = [fwhm, fwhm, ZERO]
            return
        second = "ratio" if self.by_ratio else "emin"
        self.shape = [self._one(source, key, slots) for key in ("emaj", second, "pa")]


One = Callable[[str], int]


def slot_of(source: ShapedSource, slots: ModelSlots) -> One:
    """A function that adds a quantity of a source to the slots, by its key, and gives its slot."""

    def add(key: str) -> int:
        return slots.add(source.name, key, getattr(source, key), DIMENSIONS[key])

    return add


def parts(table: SourceSlots, source: ShapedSource, slots: ModelSlots) -> list[SourceSlots]:
    """The parts of a source, of which `table` has position, brightness and spectrum."""
    one = slot_of(source, slots)
    if isinstance(source, ShapeletSource):
        size = one("scale")
        table.shape, table.turns = [size, size, one("axis_pa")], False
    else:
        _size(table, source, one)
    table.kind = _KERNEL_NAMES.get(source.type, source.type)
    if isinstance(source, CoreHaloSource):
        return _core_and_halo(table, one)
    table.rank = PROFILE
    blur = Combination()
    if getattr(source, "blur", None) is not None:
        slot = one("blur")
        blur = Combination(0.0, ((1.0, slot),))
        table.limits += [
            (slot, ValueLimits(0.0, math.inf)),
            (table.shape[0], ValueLimits(0.0, math.inf, True)),
        ]
    if isinstance(source, ShapeletSource):
        return list(_shapelets(table, source, slots, blur))
    if isinstance(source, CustomSource):
        table.kind = CUSTOM + source.profile
        table.numbers = _arguments(source, slots)
        return [table]
    if isinstance(source, MRingSource):
        return list(_mrings(table, source, slots, blur))
    found = [Combination(0.0, ((1.0, slot),)) for slot in _limited(table, source.numbers, one)]
    if isinstance(source, CrescentSource):
        ((_, hole),) = found[3].terms
        found[3] = Combination(0.0, ((1.0, hole), (-1.0, table.shape[2])))
    if isinstance(source, GradientGaussianSource):
        found.append(Combination(table.spectrum.given_ref_freq("a gradient of the spectral index")))
    table.numbers = _numbers(found, blur)
    return [table]


def _arguments(source: CustomSource, slots: ModelSlots) -> tuple[Combination, ...]:
    found = [
        Combination(0.0, ((1.0, slots.add(source.name, name, value, ANGLE if is_angle else NUMBER)),))
        for name, (value, is_angle) in source.arguments().items()
    ]
    return (*found, *[Combination()] * (N_PARAMETER - len(found)))


def _size(table: SourceSlots, source: ShapedSource, one: One) -> None:
    table.by_ratio = source.ratio is not None
    if source.emaj is None:
        size = one(source.size_key)
        table.shape = [size, size, ZERO]
    else:
        table.shape = [one("emaj"), one("ratio" if table.by_ratio else "emin"), one("pa")]
        table.turns = True


def _limited(table: SourceSlots, limits: Mapping[str, ValueLimits], one: One) -> list[int]:
    found = [one(key) for key in limits]
    table.limits += zip(found, limits.values(), strict=True)
    return found


def _numbers(given: Sequence[Combination], last: Combination) -> tuple[Combination, ...]:
    return (*given, *[Combination()] * (_BLUR - len(given)), last)


def _core_and_halo(table: SourceSlots, one: One) -> list[SourceSlots]:
    if (blur := one("blur")) != ZERO:
        table.blur = blur
        table.limits.append((blur, ValueLimits(0.0, math.inf)))
    core = copy.copy(table)
    if (size := one("core_fwhm")) == blur == ZERO:
        core.rank, core.shape = POINT, []
    else:
        core.rank, core.shape = GAUSSIAN, [size, size, ZERO]
    core.by_ratio = False
    core.name, table.name = f"{table.name}:core", f"{table.name}:halo"
    (fraction,) = _limited(table, CoreHaloSource.numbers, one)
    table.rank = GAUSSIAN
    core.weight, table.weight = Weight(0.0, 1.0, fraction), Weight(1.0, -1.0, fraction)
    return [core, table]


def _series(source: MRingSource, key: str, slots: ModelSlots) -> list[int]:
    values: Series | None = getattr(source, key)
    return [] if values is None else slots.add_series(source.name, key, values, NUMBER)


def _mrings(
    table: SourceSlots, source: MRingSource, slots: ModelSlots, blur: Combination
) -> Iterator[SourceSlots]:
    """A ring for Stokes I and what follows it, others for Q, U and V that have a structure of their own.

    With P = Q + i U = sum_m p_m e^(i m phi), the coefficients of Q are (p_m + conj(p_-m)) / 2, those of U
    (p_m - conj(p_-m)) / (2i).
    """
    keys = ("beta_re", "beta_im", "beta_pol_re", "beta_pol_im", "beta_v_re", "beta_v_im")
    re, im, pol_re, pol_im, v_re, v_im = (_series(source, key, slots) for key in keys)

    def rings(
        beta0: Combination, betas: Sequence[Combination], stokes: str | None = None
    ) -> Iterator[SourceSlots]:
        for first in range(0, max(len(betas), 1), _RING_NUMBERS):
            part = copy.copy(table)
            if stokes is not None:
                part.stokes, part.fractions = {stokes: table.stokes["I"]}, {}
                part.name = f"{table.name}:{stokes}"
            numbers = list(betas[first : first + _RING_NUMBERS])
            numbers += [Combination()] * (_RING_NUMBERS - len(numbers))
            if first:
                order = 1 + first // 2
                part.kind, part.name = HIGH_MRING, f"{part.name}:{order}"
                numbers.append(Combination(float(order)))
            else:
                numbers.append(beta0)
            part.numbers = _numbers(numbers, blur)
            yield part

    def each(of_re: Sequence[int], of_im: Sequence[int]) -> list[Combination]:
        pairs = zip(of_re, of_im, strict=True)
        return [Combination(0.0, ((1.0, slot),)) for pair in pairs for slot in pair]

    yield from rings(Combination(1.0), each(re, im))
    if pol_re:
        zero = len(pol_re) // 2
        of_q, of_u = [], []
        for m in range(1, zero + 1):
            up, down = zero + m, zero - m
            of_q.append(Combination(0.0, ((0.5, pol_re[up]), (0.5, pol_re[down]))))
            of_q.append(Combination(0.0, ((0.5, pol_im[up]), (-0.5, pol_im[down]))))
            of_u.append(Combination(0.0, ((0.5, pol_im[up]), (0.5, pol_im[down]))))
            of_u.append(Combination(0.0, ((-0.5, pol_re[up]), (0.5, pol_re[down]))))
        yield from rings(Combination(0.0, ((1.0, pol_re[zero]),)), of_q, "Q")
        yield from rings(Combination(0.0, ((1.0, pol_im[zero]),)), of_u, "U")
    if v_re:
        yield from rings(Combination(0.0, ((1.0, v_re[0]),)), each(v_re[1:], v_im[1:]), "V")


def _shapelets(
    table: SourceSlots, source: ShapeletSource, slots: ModelSlots, blur: Combination
) -> Iterator[SourceSlots]:
    """Five orders along the axis in each part, one order across it."""
    found = slots.add_series(source.name, "coefficients", source.coefficients, NUMBER)

    def coefficient(m: int, n: int) -> Combination:
        if m == n == 0:
            return Combination(1.0)
        order = m + n
        return Combination(0.0, ((1.0, found[order * (order + 1) // 2 + n - 1]),))

    highest = source.order()
    for n in range(highest + 1):
        for first in range(0, highest - n + 1, _SHAPELET_TERMS):
            part = copy.copy(table)
            if first or n:
                part.name = f"{table.name}:{first},{n}"
            orders = range(first, min(first + _SHAPELET_TERMS, highest - n + 1))
            terms = [coefficient(m, n) for m in orders]
            part.numbers = _numbers([Combination(float(first)), Combination(float(n)), *terms], blur)
            yield part
