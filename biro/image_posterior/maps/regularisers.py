"""What the fast map prefers among images that fit: few structures, high entropy, or little total variation.

Each makes an image x of variables z, with a penalty: the map minimises chi2(x(z))/2 + strength penalty(z).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from biro.models.choices import Regularisation

Array = NDArray[np.float64]
_B3 = np.array([1.0, 4.0, 6.0, 4.0, 1.0]) / 16.0
"""The B3 spline of the starlet transform."""
EDGE = 1e-3
"""Steps between pixels below this share of the largest are smoothed in the total variation."""
FAINTEST = 1e-8
"""Where the entropy starts: share of the mean brightness."""


class Regulariser(ABC):
    """Images x of variables z with a penalty.

    Attributes
    ----------
    low : float
        Smallest value of each variable.
    strongest, weakest : float
        Strengths between which the rule chooses.
    """

    low: float = 0.0
    strongest: float
    weakest: float

    @abstractmethod
    def start(self, dirty: Array) -> Array:
        """Variables to start from, of a dirty image that is not divided by the sum of weights."""

    @abstractmethod
    def image(self, z: Array) -> Array:
        """The image, float64 (N, N)."""

    @abstractmethod
    def pull(self, z: Array, gradient: Array) -> Array:
        """Derivatives with respect to the variables, of those with respect to the image."""

    @abstractmethod
    def penalty(self, z: Array) -> tuple[float, Array]:
        """The penalty, and its derivatives with respect to the variables."""


class Starlet(Regulariser):
    """Sums of smooth blobs of several sizes, each of positive flux, and the fewer the better.

        x = sum over j of phi_j * (z_j / sigma_j),   z >= 0,   penalty = sum of z

    phi_j are the scaling functions of the starlet transform (a point, then B3 splines of twice the width
    each), of unit sum, half their width apart. sigma_j is the noise of the gradient of chi2/2 with respect to
    a blob. A blob enters only if its gradient exceeds `strength` sigma: as multi-scale CLEAN with
    that threshold, of which this is the convex form (Starck & Fadili 2007; Cornwell 2008).

    Parameters
    ----------
    transfer : float64 (2N, N + 1)
        Transform of the PSF on twice the field.
    n : int
        N.
    """

    def __init__(self, transfer: Array, n: int) -> None:
        self.n_scale = max(1, int(np.log2(n)) - 1)
        self._n = n
        points = n * n
        self.strongest, self.weakest = float(np.sqrt(2.0 * np.log(points))), 1.0
        unit, sigma = np.zeros((2 * n, 2 * n)), []
        unit[n, n] = 1.0
        for j in range(self.n_scale):
            unit = unit if j == 0 else _smooth(unit, 1 << (j - 1))
            power = np.abs(np.fft.rfft2(unit)) ** 2 * transfer
            both = 2.0 * power.sum() - power[:, 0].sum() - power[:, -1].sum()
            sigma.append(np.sqrt(max(both, 1e-300) / (2 * n) ** 2))
        self.sigma = np.array(sigma)
        # Blobs lie as far apart as half their width: closer ones are sums of these.
        self._strides = [max(1, 1 << (j - 1)) if j else 1 for j in range(self.n_scale)]
        self._ends = np.cumsum([0, *((-(-n // stride)) ** 2 for stride in self._strides)])

    def start(self, dirty: Array) -> Array:
        return np.zeros(self._ends[-1])

    def image(self, z: Array) -> Array:
        x = np.zeros((self._n, self._n))
        for j in range(self.n_scale - 1, -1, -1):
            x[:: self._strides[j], :: self._strides[j]] += self._plane(z, j) / self.sigma[j]
            x = _smooth(x, 1 << (j - 1)) if j else x
        return x

    def pull(self, z: Array, gradient: Array) -> Array:
        out = np.empty_like(z)
        for j in range(self.n_scale):
            gradient = _smooth(gradient, 1 << (j - 1)) if j else gradient
            self._plane(out, j)[:] = gradient[:: self._strides[j], :: self._strides[j]] / self.sigma[j]
        return out

    def penalty(self, z: Array) -> tuple[float, Array]:
        return float(z.sum()), np.ones_like(z)

    def _plane(self, z: Array, j: int) -> Array:
        """Fluxes of the blobs of a size, a view."""
        side = -(-self._n // self._strides[j])
        return z[self._ends[j] : self._ends[j + 1]].reshape(side, side)


class Entropy(Regulariser):
    """Images of high entropy (Skilling & Bryan 1984): penalty = sum of x ln(x/m) - x + m, x = m exp(z).

    m is flat, of the flux that the dirty image suggests, per pixel.

    Parameters
    ----------
    flux : float, Jy
    n : int
        N.
    """

    low = float(np.log(FAINTEST))

    def __init__(self, flux: float, n: int, unit: float) -> None:
        self._m, self._unit = flux / n**2, unit
        self.strongest, self.weakest = 1e2, 0.1

    def start(self, dirty: Array) -> Array:
        return np.zeros(dirty.shape)

    def image(self, z: Array) -> Array:
        return np.asarray(self._m * np.exp(np.minimum(z, 50.0)))

    def pull(self, z: Array, gradient: Array) -> Array:
        return self.image(z) * gradient

    def penalty(self, z: Array) -> tuple[float, Array]:
        x = self.image(z)
        return float((x * z - x + self._m).sum()) * self._unit, x * z * self._unit


class TotalVariation(Regulariser):
    """Images of few edges (Rudin, Osher & Fatemi 1992): penalty = sum of sqrt(|grad x|^2 + edge^2), x >= 0.

    Parameters
    ----------
    scale : float, Jy/pixel
        A typical brightness.
    n : int
        N.
    """

    def __init__(self, scale: float, unit: float) -> None:
        self._scale, self._unit = scale, unit
        self.strongest, self.weakest = 1e2, 0.1

    def start(self, dirty: Array) -> Array:
        return np.zeros(dirty.shape)

    def image(self, z: Array) -> Array:
        return z * self._scale

    def pull(self, z: Array, gradient: Array) -> Array:
        return gradient * self._scale

    def penalty(self, z: Array) -> tuple[float, Array]:
        along = np.diff(z, axis=0, append=0.0), np.diff(z, axis=1, append=0.0)
        size = np.sqrt(along[0] ** 2 + along[1] ** 2 + EDGE**2)
        unit = self._unit * self._scale
        gradient = np.zeros_like(z)
        for axis, step in enumerate(along):
            slope = step / size
            gradient -= slope
            after = (slice(1, None), slice(None)) if axis == 0 else (slice(None), slice(1, None))
            before = (slice(None, -1), slice(None)) if axis == 0 else (slice(None), slice(None, -1))
            gradient[after] += slope[before]
        return float((size - EDGE).sum()) * unit, gradient * unit


def make_regulariser(name: Regularisation, transfer: Array, dirty: Array) -> Regulariser:
    """The regulariser of a name.

    Parameters
    ----------
    name : "starlet", "entropy" or "tv"
    transfer : float64 (2N, N + 1)
        Transform of the PSF on twice the field.
    dirty : float64 (N, N)
        R^T W d, not divided by the sum of weights.
    """
    n = dirty.shape[0]
    if name == "starlet":
        return Starlet(transfer, n)
    # The sum of weights is the mean of the transfer function: the height of the PSF in its middle.
    both = 2.0 * transfer.sum() - transfer[:, 0].sum() - transfer[:, -1].sum()
    total = float(both) / (2 * n) ** 2
    peak = float(np.abs(dirty).max()) / total
    # Strength 1 is one sigma of the dirty image, as for the starlet.
    unit = float(np.sqrt(total))
    if name == "entropy":
        return Entropy(peak, n, unit)
    return TotalVariation(peak / 100.0, unit)


def _smooth(x: Array, step: int) -> Array:
    """The convolution with a B3 spline whose taps are `step` pixels apart, zeros beyond the rim."""
    for axis in range(2):
        n = x.shape[axis]
        out = _B3[2] * x
        for shift, tap in ((step, _B3[1]), (2 * step, _B3[0])):
            if shift < n:
                first = (slice(shift, None), slice(None)) if axis == 0 else (slice(None), slice(shift, None))
                last = (slice(None, -shift), slice(None)) if axis == 0 else (slice(None), slice(None, -shift))
                out[first] += tap * x[last]
                out[last] += tap * x[first]
        x = out
    return x
