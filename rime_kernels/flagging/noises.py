"""The noises of the lines of a waterfall, and what they have in common."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rime_kernels.compile.jit import inner_function, scalar
from rime_kernels.flagging.lines import MAD_NORMAL, MIN_SAMPLES, median_of_line

Line = NDArray[np.float32]
Codes = NDArray[np.uint8]

VARIANCE = 1.36
"""Relative variance of a noise from the median of n deviations, times n.

For a median m of deviations whose density there is p(m) it is 1/(2 m p(m))^2: 1.36 of normal deviations, 1.24
of those of Rayleigh's law from its mean.
"""
FAR = 3.0
"""Noises so many standard deviations from the common one are not drawn to it."""


@inner_function
def noise_of_line(deviation: Line, code: Codes, line: Line) -> tuple[float, int]:
    """Noise of the samples that are clear, NaN where they are too few or it is 0; and how many they are."""
    n = 0
    for i in range(len(deviation)):
        clear = code[i] == 0
        n += clear
        line[i] = abs(deviation[i]) if clear else np.float32(math.inf)
    if n < MIN_SAMPLES:
        return math.nan, n
    noise = MAD_NORMAL * median_of_line(line[: len(deviation)], n)
    return (noise if noise > 0.0 else math.nan), n


@scalar
def errors_from(noise: float, n: int, common: float) -> float:
    """By how many of its standard errors a noise of n samples differs from another, as a ratio."""
    return math.log(noise / common) * math.sqrt(n / VARIANCE)


@scalar
def drawn(noise: float, n: int, common: float, spread: float) -> float:
    """A noise drawn to the common one by as much of their spread as errors explain.

    Parameters
    ----------
    noise, common : float
    n : int
        Samples that the noise is of.
    spread : float
        Standard deviation of `errors_from` of all noises: 1 where they differ by their errors alone.
    """
    if abs(errors_from(noise, n, common)) > FAR * max(1.0, spread):
        return noise
    kept = max(0.0, 1.0 - 1.0 / spread**2) if spread > 0.0 else 0.0
    return common * math.exp(kept * math.log(noise / common))


@inner_function
def share_noises(noise: NDArray[np.float64], n: NDArray[np.int64], line: Line) -> None:
    """Draw the noises of lines to what they have in common, in place (empirical Bayes).

    Logarithms of noises s_i of n_i samples scatter by their errors, of variance v_i = `VARIANCE`/n_i, and by
    what they truly differ by, of variance t_i^2. Let z_i = ln(s_i/c)/sqrt(v_i), with the median noise c, and
    let z be 1.4826 times the median of |z_i|: then z^2 = 1 + t_i^2/v_i, and the best estimate is c (s_i/c)^k
    with k = t_i^2/(v_i + t_i^2) = max(0, 1 - 1/z^2) (Efron & Morris 1973, JASA 68, 117). A noise with
    |z_i| > 3 max(1, z) is not one of these, and stays as it is.

    Parameters
    ----------
    noise : float64 (n_line,)
        NaN where it is not known, and stays so.
    n : int64 (n_line,)
        Samples of each.
    line : float32 (n_line or more,)
        Workspace.
    """
    n_known = 0
    for i in range(len(noise)):
        known = noise[i] > 0.0
        n_known += known
        line[i] = np.float32(noise[i]) if known else np.float32(math.inf)
    if n_known == 0:
        return
    common = median_of_line(line[: len(noise)], n_known)
    for i in range(len(noise)):
        if noise[i] > 0.0:
            line[i] = np.float32(abs(errors_from(noise[i], n[i], common)))
    spread = MAD_NORMAL * median_of_line(line[: len(noise)], n_known)
    for i in range(len(noise)):
        if noise[i] > 0.0:
            noise[i] = drawn(noise[i], n[i], common, spread)
