"""Rings and discs that are brighter on one side: m-ring and crescent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import ClassVar

from biro.models.components.shapes.discs import DiscSource
from biro.models.components.shapes.shaped import FRACTION, ShapedSource, ValueLimits
from biro.models.components.source import Source
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, QuantityLike, Series, series
from biro.models.quantities.strict import Entry, strict
from biro.models.quantities.units import NUMBER


@strict
class CrescentSource(ShapedSource):
    """A disc with a hole that lies off its centre (Kamruddin & Dexter 2013; ehtim: crescent).

    Parameters
    ----------
    diameter : angle
        The outer one; blur as for `DiscSource`.
    inner_ratio : number, 0 .. 1
        Diameter of the hole over that of the disc.
    offset : number, 0 .. 1
        Distance of the hole's centre from the disc's, as a fraction of that at which their edges touch.
    floor : number, 0 .. 1
        Brightness within the hole over that outside.
    hole_pa : angle
        Position angle of the hole's centre, from north through east.
    """

    type: ClassVar[str] = "crescent"
    size_key: ClassVar[str] = "diameter"
    numbers: ClassVar[Mapping[str, ValueLimits]] = {
        "inner_ratio": FRACTION,
        "offset": FRACTION,
        "floor": FRACTION,
        "hole_pa": ValueLimits(-math.inf, math.inf),
    }
    shape_keys: ClassVar[tuple[str, ...]] = (*DiscSource.shape_keys, *numbers)
    _: KW_ONLY
    diameter: QuantityLike = None
    blur: QuantityLike = None
    inner_ratio: QuantityLike = None
    offset: QuantityLike = None
    floor: QuantityLike = Fixed(0.0)
    hole_pa: QuantityLike = None


def _pair(source: Source, of_re: str, of_im: str, allowed: range, what: str) -> int:
    """Read two lists of numbers, real and imaginary parts, of one length among those allowed."""
    given = [key for key in (of_re, of_im) if getattr(source, key) is not None]
    if not given:
        return 0
    if len(given) == 1:
        raise ModelError(f"{of_re} and {of_im} go together; one is missing")
    lists: list[Series] = []
    for key in given:
        source._set(key, series, NUMBER)
        lists.append(getattr(source, key))
    if len(lists[0]) != len(lists[1]) or len(lists[0]) not in allowed:
        raise ModelError(f"{of_re}, {of_im}: {what}; found {len(lists[0])} and {len(lists[1])} numbers")
    return len(lists[0])


@strict
class MRingSource(ShapedSource):
    """A thin ring with structure along it, brightness 1 + 2 Re sum_m beta_m e^(i m PA) (Johnson et al. 2020).

    PA is the position angle on the ring, from north through east, before it is stretched (ehtim: mring,
    thick_mring, stretched_mring). Stokes parameters follow I unless their own coefficients are given.

    Parameters
    ----------
    diameter, blur
        As for `DiscSource`.
    beta_re, beta_im : lists of 1 to 12 numbers
        beta_m from m = 1; that of m = 0 is 1, that of -m the conjugate of that of m.
    beta_pol_re, beta_pol_im : lists of 1, 3, 5, ... or 25 numbers, optional
        (Q + i U) / I on the ring is sum_m beta_pol_m e^(i m PA): from m = -M to m = M.
    beta_v_re, beta_v_im : lists of 1 to 13 numbers, optional
        V / I is beta_v_0 + 2 Re sum_m beta_v_m e^(i m PA), from m = 0; the imaginary part of the first is 0.
    """

    type: ClassVar[str] = "m-ring"
    size_key: ClassVar[str] = "diameter"
    shape_keys: ClassVar[tuple[str, ...]] = DiscSource.shape_keys
    _: KW_ONLY
    diameter: QuantityLike = None
    blur: QuantityLike = None
    beta_re: Entry = None
    beta_im: Entry = None
    beta_pol_re: Entry = None
    beta_pol_im: Entry = None
    beta_v_re: Entry = None
    beta_v_im: Entry = None

    def _check_shape(self) -> None:
        super()._check_shape()
        if self.beta_re is None and self.beta_im is None:
            raise ModelError('beta_re and beta_im are missing; a ring without structure is of type "ring"')
        _pair(self, "beta_re", "beta_im", range(1, 13), "beta_1 to beta_12 at most")
        pol = _pair(self, "beta_pol_re", "beta_pol_im", range(1, 26, 2), "from m = -M to m = M, M at most 12")
        v = _pair(self, "beta_v_re", "beta_v_im", range(1, 14), "from m = 0 to m = 12 at most")
        if pol and any(getattr(self, key) is not None for key in ("Q", "U", "pol_fraction")):
            raise ModelError("Q and U are given twice: by themselves and by beta_pol_re and beta_pol_im")
        if v and any(getattr(self, key) is not None for key in ("V", "v_fraction")):
            raise ModelError("V is given twice: by itself and by beta_v_re and beta_v_im")
        if v and not (isinstance(self.beta_v_im[0], Fixed) and self.beta_v_im[0].value == 0):
            raise ModelError("beta_v_im: the first number is the imaginary part of beta_v_0, which must be 0")
