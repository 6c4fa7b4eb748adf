"""Sources without an edge: galaxies, clusters, cores with halos, shapelets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import ClassVar

from biro.models.components.shapes.shaped import FRACTION, ShapedSource, ValueLimits
from biro.models.errors import ModelError
from biro.models.quantities.parameter import Fixed, QuantityLike, series
from biro.models.quantities.strict import Entry, strict
from biro.models.quantities.units import NUMBER


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
    numbers: ClassVar[Mapping[str, ValueLimits]] = {"n": ValueLimits(0.3, 8.0)}
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
    numbers: ClassVar[Mapping[str, ValueLimits]] = {"beta": ValueLimits(0.505, 8.0)}
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
    blur : angle, optional
        Full width at half maximum of a circular Gaussian that both are convolved with.
    """

    type: ClassVar[str] = "core-halo"
    size_key: ClassVar[str] = "fwhm"
    numbers: ClassVar[Mapping[str, ValueLimits]] = {"core_fraction": FRACTION}
    shape_keys: ClassVar[tuple[str, ...]] = (
        "fwhm",
        "emaj",
        "emin",
        "ratio",
        "pa",
        "core_fwhm",
        "core_fraction",
        "blur",
    )
    _: KW_ONLY
    fwhm: QuantityLike = None
    blur: QuantityLike = None
    core_fwhm: QuantityLike = None
    core_fraction: QuantityLike = None


@strict
class GradientGaussianSource(ShapedSource):
    """A Gaussian whose spectral index changes linearly across it; `I` is its flux at ref_freq.

    Brightness G x^(gradient_along s / emaj + gradient_across t / emin) times the spectrum, x = nu / ref_freq,
    s and t from the centre along pa and along pa + 90 deg. Away from ref_freq the flux is
    x^(c/2 ln(x) (gradient_along^2 + gradient_across^2)) of what the spectrum says, c = 1 / (8 ln 2), and the
    centre moves by c ln(x) gradient_along emaj along pa, c ln(x) gradient_across emin along pa + 90 deg.

    Parameters
    ----------
    fwhm : angle
        Or emaj, emin, pa; or emaj, ratio, pa, as for a Gaussian. blur as for `DiscSource`.
    gradient_along : number
        Change of the spectral index over emaj along pa; of a circle over fwhm towards north.
    gradient_across : number, default 0
        The same over emin along pa + 90 deg; of a circle over fwhm towards east.

    Raises
    ------
    ModelError
        When bound without a ref_freq, its own or that of the sky.
    """

    type: ClassVar[str] = "gradient-gaussian"
    size_key: ClassVar[str] = "fwhm"
    numbers: ClassVar[Mapping[str, ValueLimits]] = {
        "gradient_along": ValueLimits(-math.inf, math.inf),
        "gradient_across": ValueLimits(-math.inf, math.inf),
    }
    shape_keys: ClassVar[tuple[str, ...]] = ("fwhm", "emaj", "emin", "ratio", "pa", "blur", *numbers)
    _: KW_ONLY
    fwhm: QuantityLike = None
    blur: QuantityLike = None
    gradient_along: QuantityLike = None
    gradient_across: QuantityLike = Fixed(0.0)


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
    blur : angle, optional
        Full width at half maximum of a circular Gaussian that the source is convolved with.
    coefficients : list of numbers
        c_10, c_01, c_20, c_11, c_02, c_30, ...: whole orders m + n, up to 10.
    """

    type: ClassVar[str] = "shapelets"
    size_key: ClassVar[str] = "scale"
    shape_keys: ClassVar[tuple[str, ...]] = ("scale", "axis_pa", "blur")
    _: KW_ONLY
    scale: QuantityLike = None
    blur: QuantityLike = None
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
