"""Beams sampled on a grid from functions, as fine as the wanted accuracy needs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.errors import InputError
from biro.files.memory import check_memory
from biro.models.components.beam_cube import AntennaBeams, BeamCube
from biro.models.errors import ModelError

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
BeamFunction = Callable[[Array, Array, float], Any]
AntennaFunction = Callable[[Array, Array, float, str, float], Any]
_FIRST, _MOST = 33, 1025
# Bytes of a node of a plane: values, spline coefficients, and a copy on the way.
_BYTES_PER_NODE = 4 * 64.0


def sample_beam(
    function: BeamFunction,
    freq: ArrayLike,
    extent: float,
    *,
    accuracy: float = 1e-6,
    name: str = "beam",
) -> BeamCube:
    """Sample a voltage beam on a grid that is as fine as the accuracy needs.

    Parameters
    ----------
    function : callable (x, y, freq) -> complex (..., 2, 2)
        E at direction cosines x and y, float64 arrays of one shape, in the frame of the antenna
        (`BeamCube`), and at a frequency in Hz.
    freq : float64 (n_freq,), Hz
        Where planes are wanted, ascending. Give the channels' frequencies, and nothing is interpolated in
        frequency.
    extent : float
        Largest |x| and |y|.
    accuracy : float
        Largest error between nodes relative to the largest |E|, as `BeamCube.direction_error` estimates it.
    name : str
        For messages.

    Returns
    -------
    BeamCube
        With 1025 x 1025 nodes at most; where these are not enough, a warning says what was reached.

    Raises
    ------
    InputError
        The function returns another shape, or values that are not finite; the grid would need more memory
        than is free.
    """
    return _sample([function], np.atleast_1d(np.asarray(freq, np.float64)), extent, accuracy, name)[0]


def sample_antenna_beams(
    function: AntennaFunction,
    freq: ArrayLike,
    extent: float,
    antenna_names: Sequence[str],
    time: ArrayLike = (0.0,),
    *,
    accuracy: float = 1e-6,
    name: str = "beam",
) -> AntennaBeams:
    """Sample voltage beams that differ between antennas, or change in time.

    Antennas and times whose beams are the same on a grid of 33 x 33 nodes share one.

    Parameters
    ----------
    function : callable (x, y, freq, antenna, time) -> complex (..., 2, 2)
        As for `sample_beam`; antenna is one of the names, time one of the times.
    freq, extent, accuracy, name
        As for `sample_beam`.
    antenna_names : sequence of str
    time : float64 (n_time,), s
        MJD, when beams are wanted; between these the nearest is taken.

    Returns
    -------
    AntennaBeams

    Raises
    ------
    InputError
        As `sample_beam`.
    """
    planes = np.atleast_1d(np.asarray(freq, np.float64))
    times = np.atleast_1d(np.asarray(time, np.float64))
    nodes = np.linspace(-extent, extent, _FIRST)
    which = np.empty((times.size, len(antenna_names)), np.int32)
    different: dict[bytes, int] = {}
    functions: list[BeamFunction] = []
    for t, a in np.ndindex(*which.shape):
        one = partial(_of_antenna, function, antenna_names[a], float(times[t]))
        key = _values(one, nodes, planes, f"{name} of antenna {antenna_names[a]}").tobytes()
        which[t, a] = different.setdefault(key, len(functions))
        if which[t, a] == len(functions):
            functions.append(one)
    cubes = _sample(functions, planes, extent, accuracy, name)
    return AntennaBeams(tuple(cubes), tuple(antenna_names), times, which)


def _of_antenna(function: AntennaFunction, antenna: str, time: float, x: Array, y: Array, freq: float) -> Any:
    return function(x, y, freq, antenna, time)


def _sample(
    functions: Sequence[BeamFunction], planes: Array, extent: float, accuracy: float, name: str
) -> list[BeamCube]:
    """Cubes of functions on one grid, which is fine enough for all of them."""
    n = _FIRST
    while True:
        needed = _BYTES_PER_NODE * n * n * planes.size * len(functions)
        check_memory(
            needed, f"{name} on {n} x {n} nodes", "give a smaller extent, or fewer channels or times"
        )
        x = np.linspace(-extent, extent, n)
        try:
            cubes = [BeamCube(x, x, planes, _values(one, x, planes, name), name=name) for one in functions]
        except ModelError as found:
            raise InputError(str(found)) from None
        error = max(cube.direction_error for cube in cubes)
        if error <= accuracy or n >= _MOST:
            break
        n = 2 * n - 1
    if error > accuracy:
        log.warning(
            "%s: with %d x %d nodes the beam is accurate to %.1g, not to the requested %.1g",
            name,
            n,
            n,
            error,
            accuracy,
        )
    return cubes


def katbeam(model: str, freq: ArrayLike, extent: float, *, accuracy: float = 1e-6) -> BeamCube:
    """MeerKAT's voltage beam of the package `katbeam`: real, without cross-hands.

    H is taken as X and V as Y, x to the east where the antenna's frame is not turned: `katbeam` itself does
    not say.

    Parameters
    ----------
    model : str
        Such as "MKAT-AA-L-JIM-2020".
    freq : float64 (n_freq,), Hz
    extent : float
        Largest |x| and |y|, direction cosines.
    accuracy : float
        As for `sample_beam`.

    Returns
    -------
    BeamCube

    Raises
    ------
    InputError
        `katbeam` is not installed, or does not know the model, or the frequencies lie outside of it.
    """
    try:
        from katbeam import JimBeam
    except ImportError:
        raise InputError(
            "a katbeam beam needs the package katbeam; in the checkout of biro: pip install '.[beams]'"
        ) from None
    from katbeam.jimbeam import KNOWN_MODELS

    if model not in KNOWN_MODELS:
        raise InputError(f"katbeam has no model {model!r}; it has {', '.join(KNOWN_MODELS)}")
    beam = JimBeam(model)
    low, high = 1e6 * beam.freqMHzlist.min(), 1e6 * beam.freqMHzlist.max()
    planes = np.atleast_1d(np.asarray(freq, dtype=np.float64))
    if planes.min() < low or planes.max() > high:
        raise InputError(
            f"katbeam's {model} holds from {low / 1e6:g} to {high / 1e6:g} MHz; the data reach from "
            f"{planes.min() / 1e6:g} to {planes.max() / 1e6:g} MHz"
        )

    def jones(x: Array, y: Array, hertz: float) -> NDArray[np.complex128]:
        found = np.zeros((*x.shape, 2, 2), complex)
        found[..., 0, 0] = beam.HH(np.rad2deg(x), np.rad2deg(y), hertz / 1e6)
        found[..., 1, 1] = beam.VV(np.rad2deg(x), np.rad2deg(y), hertz / 1e6)
        return found

    return sample_beam(jones, planes, extent, accuracy=accuracy, name=f"katbeam {model}")


def _values(function: BeamFunction, nodes: Array, freq: Array, name: str) -> NDArray[np.complex128]:
    y, x = np.meshgrid(nodes, nodes, indexing="ij")
    values = np.empty((freq.size, *x.shape, 2, 2), complex)
    for i, hertz in enumerate(freq):
        try:
            found = np.asarray(function(x, y, float(hertz)))
        except Exception as error:  # of a user's own function
            raise InputError(f"{name}: the function fails at {hertz:g} Hz: {error!r}") from error
        if found.shape != values.shape[1:]:
            raise InputError(
                f"{name}: the function must return (..., 2, 2) = {values.shape[1:]} for directions of shape "
                f"{x.shape}, returned {found.shape}"
            )
        if not np.isfinite(found).all():
            raise InputError(f"{name}: the function gives NaN or infinity at {hertz:g} Hz")
        values[i] = found
    return values
