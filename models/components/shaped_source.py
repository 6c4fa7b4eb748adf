"""What a user writes for sources that are neither points nor Gaussians: discs, rings, galaxies, clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, NamedTuple

from biro.models.components.source import Source
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, QuantityLike, Series, series
from biro.models.quantities.strict import Entry, strict
from biro.models.quantities.units import NUMBER

_ELLIPSES = (["emaj", "emin", "pa"], ["emaj", "ratio", "pa"])


class Limits(NamedTuple):
    """Between which values a quantity must lie; with `above_low` it is not `low` itself."""

    low: float
    high: float
    above_low: bool = False


_FRACTION = Limits(0.0, 1.0)


@dataclass(frozen=True)
class ShapedSource(Source):
    """What sources with a shape of their own share: a size, and what it is along another axis.

    The size is given once, by the key that `size_key` names, or as an ellipse: emaj, emin (or ratio) and pa,
    where emaj is that size along the axis of position angle pa. `blur` is the full width at half maximum,
    along the major axis, of a Gaussian that the source is convolved with; it is circular before the source is
    stretched.
    """

    label: ClassVar[str] = "source"
    type: ClassVar[str]
    size_key: ClassVar[str]
    # Quantities beside the size, each with its limits, in the order of the kernels' parameters.
    numbers: ClassVar[Mapping[str, Limits]] = {}
    _: KW_ONLY
    emaj: QuantityLike = None
    emin: QuantityLike = None
    ratio: QuantityLike = None
    pa: QuantityLike = None

    def _check_shape(self) -> None:
        keys = ("emaj", "emin", "ratio", "pa", self.size_key)
        given = [key for key in keys if getattr(self, key) is not None]
        if given not in (*_ELLIPSES, [self.size_key]):
            raise ModelError(
                f"a size is {self.size_key} alone for a circle; or emaj, emin, pa; or emaj, ratio, pa; "
                f"found {', '.join(given) or 'none'}"
            )
        for key in self.numbers:
            if getattr(self, key) is None:
                raise ModelError(f"{key}: is missing; a source of type {self.type!r} needs it")


@strict
class DiscSource(ShapedSource):
    """A uniform disc: V = 2 J1(z) / z, z = pi diameter q, with blur (ehtim: disk, blurred_disk).

    Parameters
    ----------
    name, ra, dec, east, north, I, Q, U, V, pol_fraction, pol_angle, v_fraction, spectral_index, \
    log10_spectrum, polynomial, ref_freq
        As for `PointSource`.
    diameter : angle
        Or emaj, emin, pa; or emaj, ratio, pa.
    blur : angle, default 0
        Full width at half maximum of the Gaussian that it is convolved with.
    """

    type: ClassVar[str] = "disc"
    size_key: ClassVar[str] = "diameter"
    shape_keys: ClassVar[tuple[str, ...]] = ("diameter", "emaj", "emin", "ratio", "pa", "blur")
    _: KW_ONLY
    diameter: QuantityLike = None
    blur: QuantityLike = None


@strict
class LimbDarkenedSource(ShapedSource):
    """A disc with brightness 1 - u (1 - mu), mu = sqrt(1 - (2r/diameter)^2) (Hanbury Brown et al. 1974).

    Parameters
    ----------
    limb_darkening : number, 0 .. 1
        The linear coefficient u.
    diameter, blur
        As for `DiscSource`.
    """

    type: ClassVar[str] = "limb-darkened-disc"
    size_key: ClassVar[str] = "diameter"
    shape_keys: ClassVar[tuple[str, ...]] = (*DiscSource.shape_keys, "limb_darkening")
    numbers: ClassVar[Mapping[str, Limits]] = {"limb_darkening": _FRACTION}
    _: KW_ONLY
    diameter: QuantityLike = None
    blur: QuantityLike = None
    limb_darkening: QuantityLike = None


@strict
class RingSource(ShapedSource):
    """An infinitely thin ring: V = J0(pi diameter q); thick with blur (ehtim: ring, thick_ring).

    Parameters
    ----------
    diameter, blur
        As for `DiscSource`.
    """

    type: ClassVar[str] = "ring"
    size_key: ClassVar[str] = "diameter"
    shape_keys: ClassVar[tuple[str, ...]] = DiscSource.shape_keys
    _: KW_ONLY
    diameter: QuantityLike = None
    blur: QuantityLike = None


@strict
class AnnulusSource(ShapedSource):
    """A uniform disc with a concentric hole.

    Parameters
    ----------
    diameter : angle
        The outer one; blur as for `DiscSource`.
    inner_ratio : number, 0 .. 1
        Inner over outer diameter; a ring at 1.
    """

    type: ClassVar[str] = "annulus"
    size_key: ClassVar[str] = "diameter"
    shape_keys: ClassVar[tuple[str, ...]] = (*DiscSource.shape_keys, "inner_ratio")
    numbers: ClassVar[Mapping[str, Limits]] = {"inner_ratio": _FRACTION}
    _: KW_ONLY
    diameter: QuantityLike = None
    blur: QuantityLike = None
    inner_ratio: QuantityLike = None


@strict
class SphereSource(ShapedSource):
    """An optically thin sphere (ellipsoid): V = 3 (sin z - z cos z) / z^3, z = pi diameter q.

    Parameters
    ----------
    diameter, blur
        As for `DiscSource`.
    """

    type: ClassVar[str] = "sphere"
    size_key: ClassVar[str] = "diameter"
    shape_keys: ClassVar[tuple[str, ...]] = DiscSource.shape_keys
    _: KW_ONLY
    diameter: QuantityLike = None
    blur: QuantityLike = None


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
    numbers: ClassVar[Mapping[str, Limits]] = {
        "inner_ratio": _FRACTION,
        "offset": _FRACTION,
        "floor": _FRACTION,
        "hole_pa": Limits(-math.inf, math.inf),
    }
    shape_keys: ClassVar[tuple[str, ...]] = (*DiscSource.shape_keys, *numbers)
    _: KW_ONLY
    diameter: QuantityLike = None
    blur: QuantityLike = None
    inner_ratio: QuantityLike = None
    offset: QuantityLike = None
    floor: QuantityLike = Fixed(0.0)
    hole_pa: QuantityLike = None


@strict
class ExponentialSource(ShapedSource):
    """A disc of brightness exp(-r / scale_length): V = (1 + (2 pi scale_length q)^2)^(-3/2).

    Parameters
    ----------
    scale_length : angle
        Or emaj, emin, pa; or emaj, ratio, pa. blur as for `DiscSource`.
    """

    type: ClassVar[str] = "exponential"
    size_key: ClassVar[str] = "scale_length"
    shape_keys: ClassVar[tuple[str, ...]] = ("scale_length", "emaj", "emin", "ratio", "pa", "blur")
    _: KW_ONLY
    scale_length: QuantityLike = None
    blur: QuantityLike = None


@strict
class SersicSource(ShapedSource):
    """Brightness exp(-b (r / effective_radius)^(1/n)), half of the flux within effective_radius.

    Parameters
    ----------
    effective_radius : angle
        Or emaj, emin, pa; or emaj, ratio, pa. blur as for `DiscSource`.
    n : number, 0.3 .. 8
        1 is exponential, 4 de Vaucouleurs' law.
    """

    type: ClassVar[str] = "sersic"
    size_key: ClassVar[str] = "effective_radius"
    shape_keys: ClassVar[tuple[str, ...]] = ("effective_radius", "emaj", "emin", "ratio", "pa", "blur", "n")
    numbers: ClassVar[Mapping[str, Limits]] = {"n": Limits(0.3, 8.0)}
    _: KW_ONLY
    effective_radius: QuantityLike = None
    blur: QuantityLike = None
    n: QuantityLike = None


@strict
class BetaModelSource(ShapedSource):
    """Brightness (1 + (r / core_radius)^2)^(1/2 - 3 beta) (Cavaliere & Fusco-Femiano 1976).

    Parameters
    ----------
    core_radius : angle
        Or emaj, emin, pa; or emaj, ratio, pa. blur as for `DiscSource`.
    beta : number, 0.505 .. 8
        The flux is finite for beta > 1/2.
    """

    type: ClassVar[str] = "beta-model"
    size_key: ClassVar[str] = "core_radius"
    shape_keys: ClassVar[tuple[str, ...]] = ("core_radius", "emaj", "emin", "ratio", "pa", "blur", "beta")
    numbers: ClassVar[Mapping[str, Limits]] = {"beta": Limits(0.505, 8.0)}
    _: KW_ONLY
    core_radius: QuantityLike = None
    blur: QuantityLike = None
    beta: QuantityLike = None


@strict
class CoreHaloSource(ShapedSource):
    """A point or small Gaussian within a larger Gaussian; both have one position, spectrum and polarisation.

    Parameters
    ----------
    I : flux density
        Of both together.
    fwhm : angle
        Of the halo; or its emaj, emin, pa; or emaj, ratio, pa.
    core_fraction : number, 0 .. 1
        The share of the core in the flux.
    core_fwhm : angle, optional
        Of the core, a circle; a point without it.
    """

    type: ClassVar[str] = "core-halo"
    size_key: ClassVar[str] = "fwhm"
    numbers: ClassVar[Mapping[str, Limits]] = {"core_fraction": _FRACTION}
    shape_keys: ClassVar[tuple[str, ...]] = (
        "fwhm",
        "emaj",
        "emin",
        "ratio",
        "pa",
        "core_fwhm",
        "core_fraction",
    )
    _: KW_ONLY
    fwhm: QuantityLike = None
    core_fwhm: QuantityLike = None
    core_fraction: QuantityLike = None


def _pair(source: Source, of_re: str, of_im: str, allowed: tuple[int, ...], what: str) -> int:
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
    beta_re, beta_im : lists of 1 to 3 numbers
        beta_1, beta_2, beta_3; beta_0 = 1, beta_-m = conj(beta_m).
    beta_pol_re, beta_pol_im : lists of 1, 3, 5 or 7 numbers, optional
        (Q + i U) / I on the ring is sum_m beta_pol_m e^(i m PA): from m = -M to m = M.
    beta_v_re, beta_v_im : lists of 1 to 4 numbers, optional
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
        _pair(self, "beta_re", "beta_im", (1, 2, 3), "beta_1 to beta_3 at most")
        pol = _pair(self, "beta_pol_re", "beta_pol_im", (1, 3, 5, 7), "from m = -M to m = M, M at most 3")
        v = _pair(self, "beta_v_re", "beta_v_im", (1, 2, 3, 4), "from m = 0 to m = 3 at most")
        if pol and any(getattr(self, key) is not None for key in ("Q", "U", "pol_fraction")):
            raise ModelError("Q and U are given twice: by themselves and by beta_pol_re and beta_pol_im")
        if v and any(getattr(self, key) is not None for key in ("V", "v_fraction")):
            raise ModelError("V is given twice: by itself and by beta_v_re and beta_v_im")
        if v and not (isinstance(self.beta_v_im[0], Fixed) and self.beta_v_im[0].value == 0):
            raise ModelError("beta_v_im: the first number is the imaginary part of beta_v_0, which must be 0")


MOST_ORDER = 10


@strict
class ShapeletSource(ShapedSource):
    """Cartesian shapelets (Refregier 2003): a Gaussian times polynomials, in two dimensions.

    Brightness sum_mn c_mn h_m(x) h_n(y), h_m(x) = H_m(x / scale) e^(-x^2 / (2 scale^2)) / sqrt(2^m m!); x is
    along the axis of position angle axis_pa, y along axis_pa + 90 deg. c_00 = 1.

    Parameters
    ----------
    I : flux density
        Of the term m = n = 0.
    scale : angle
        beta of the shapelets.
    axis_pa : angle, default 0
    coefficients : list of numbers
        c_10, c_01, c_20, c_11, c_02, c_30, ...: whole orders m + n, up to 10.
    """

    type: ClassVar[str] = "shapelets"
    size_key: ClassVar[str] = "scale"
    shape_keys: ClassVar[tuple[str, ...]] = ("scale", "axis_pa")
    _: KW_ONLY
    scale: QuantityLike = None
    axis_pa: QuantityLike = None
    coefficients: Entry = None

    def _check_shape(self) -> None:
        if any(getattr(self, key) is not None for key in ("emaj", "emin", "ratio", "pa")):
            raise ModelError("shapelets have a scale and axis_pa; no emaj, emin, ratio, pa")
        if self.scale is None:
            raise ModelError("scale: is missing; a source of type 'shapelets' needs it")
        if self.coefficients is None:
            raise ModelError("coefficients: is missing; a source of type 'shapelets' needs it")
        self._set("coefficients", series, NUMBER)
        self.order()

    def order(self) -> int:
        """The highest order m + n."""
        for order in range(1, MOST_ORDER + 1):
            if (order + 1) * (order + 2) // 2 - 1 == len(self.coefficients):
                return order
        raise ModelError(
            f"coefficients: whole orders have 2, 5, 9, 14, 20, 27, 35, 44, 54 or 65 numbers (c_00 is 1), "
            f"found {len(self.coefficients)}"
        )


SHAPED: dict[str, type[ShapedSource]] = {
    cls.type: cls
    for cls in (
        DiscSource,
        LimbDarkenedSource,
        RingSource,
        AnnulusSource,
        SphereSource,
        MRingSource,
        CrescentSource,
        ExponentialSource,
        SersicSource,
        BetaModelSource,
        ShapeletSource,
        CoreHaloSource,
    )
}
