"""Visibilities of Sersic profiles by quadrature, and the table of `rime_kernels.physics.sersic` made of them.

`python tests/rime_kernels/sersic_table.py` writes the table anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from scipy.special import gammaincinv, gammaln, hankel1

from rime_kernels.physics import sersic

# Terms of the series below this are left out.
TOLERANCE = 1e-11
DEGREE_X, DEGREE_N = 24, 26
# Range of n, range of rho, patches in ln(rho).
PIECES = ((0.3, 1.0, 2e-4, 60.0, 13), (1.0, 2.9, 2e-5, 2e4, 11), (2.9, 8.0, 1e-6, 1e6, 14))


def visibility(n: float, rho: np.ndarray) -> np.ndarray:
    """V(rho) of exp(-b R^(1/n)), half of it within R = 1, by a contour that is turned by an angle t.

    V is the real part of the integral of R H0(2 pi rho R) exp(-b R^(1/n)) along R = e^(x + i t), where both
    factors decay, over that for rho = 0; trapezoids in x are exact to rounding for a step below
    2 pi / 36 times the angle to the next singularity.
    """
    b = gammaincinv(2 * n, 0.5)
    angle = min(n * np.pi / 4, np.pi / 2)
    step = min(0.12, 2 * np.pi * 0.95 * min(angle, n * np.pi / 2 - angle) / 36)
    last = n * np.log(60 / (b * np.cos(angle / n)))
    z = np.arange(last, min(0.0, last) - 24, -step) + 1j * angle
    profile = np.exp(2 * z - b * np.exp(z / n))
    hankel = hankel1(0, 2 * np.pi * rho[:, None] * np.exp(z))
    total = np.log(n) + gammaln(2 * n) - 2 * n * np.log(b)
    return (np.where(np.isfinite(hankel), hankel, 0.0) * profile).real.sum(1) * step / np.exp(total)


def series(n0: float, n1: float, low: float, high: float, n_patch: int) -> np.ndarray:
    """Coefficients (patch, degree in ln n, degree in ln rho) of series of Chebyshev polynomials."""
    t, y = (np.cos(np.pi * (np.arange(d + 1) + 0.5) / (d + 1)) for d in (DEGREE_N, DEGREE_X))
    edges = np.linspace(np.log(low), np.log(high), n_patch + 1)
    rho = np.exp((edges[:-1, None] + edges[1:, None] + np.diff(edges)[:, None] * y) / 2)
    n = np.exp((np.log(n0 * n1) + t * np.log(n1 / n0)) / 2)
    sampled = np.array([visibility(each, rho.ravel()) for each in n]).reshape(len(n), *rho.shape)
    in_rho = np.einsum("kj,npj->npk", np.linalg.inv(chebvander(y, DEGREE_X)), sampled)
    return np.einsum("mn,npk->pmk", np.linalg.inv(chebvander(t, DEGREE_N)), in_rho)


def rows() -> Iterator[str]:
    """Lines of the file: the pieces' ranges; then coefficients, a line for each degree in ln n of a patch."""
    for piece in PIECES:
        yield ",".join(map(repr, piece))
    for i, piece in enumerate(PIECES):
        for j, patch in enumerate(series(*piece)):
            for terms in patch:
                kept = np.flatnonzero(np.abs(terms) > TOLERANCE)
                numbers = terms[: kept[-1] + 1] if kept.size else terms[:0]
                if numbers.size:
                    yield ",".join([str(i), str(j), *(f"{number:.14f}".rstrip("0") for number in numbers)])


if __name__ == "__main__":
    text = "\n".join(rows()) + "\n"
    sersic.TABLE.write_text(text)
    print(hashlib.sha256(text.encode()).hexdigest())
