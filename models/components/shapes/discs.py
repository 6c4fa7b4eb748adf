"""Discs, rings and spheres about a centre."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import ClassVar

from biro.models.components.shapes.shaped import FRACTION, ShapedSource, ValueLimits
from biro.models.quantities.parameter import QuantityLike
from biro.models.quantities.strict import strict


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
    numbers: ClassVar[Mapping[str, ValueLimits]] = {"limb_darkening": FRACTION}
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
    numbers: ClassVar[Mapping[str, ValueLimits]] = {"inner_ratio": FRACTION}
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
