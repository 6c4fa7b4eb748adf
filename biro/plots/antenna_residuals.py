"""How the residuals of each antenna's baselines scatter, against the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from biro.display.arguments import takes_likelihood
from biro.display.style import WIDTH, colour, drawing_on, figure_of
from biro.observation.correlations import STOKES_NAMES

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

Array = NDArray[np.float64]


@takes_likelihood
def antenna_residuals(
    likelihood: Likelihood, theta: NDArray[np.float64], *, ax: Axes | None = None
) -> Figure:
    """Draw the scatter of the residuals of each antenna's baselines, one point for each correlation.

    It is the rms of real and imaginary parts in units of the fitted noise (that of the weights times the
    noise factor), with the error of so many independent samples, 1 / sqrt(4 n) of n complex ones: 1 where
    residuals are the noise of the model.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
    ax : Axes, optional
        By default those of a new figure.
    """
    square, number = scatter_of_antennas(likelihood, theta)
    names = likelihood.observation.antenna_names
    shown = np.flatnonzero(sum(each.astype(bool) for each in number.values()))
    with drawing_on(ax, (WIDTH, 3.0)) as drawn:
        for k, (corr, n) in enumerate(number.items()):
            there = shown[n[shown] > 0]
            rms = np.sqrt(square[corr][there] / (2.0 * n[there]))
            place = np.searchsorted(shown, there) + 0.5 * (k - 0.5 * (len(number) - 1)) / len(number)
            error = rms / np.sqrt(4.0 * n[there])
            drawn.errorbar(place, rms, error, fmt="o", ms=3.5, lw=1.0, color=colour(k), label=corr_text(corr))
        drawn.axhline(1.0, color="0.3", lw=0.8, zorder=0.5)
        drawn.margins(y=0.1)
        turned = 90 if len(shown) > 12 else 0
        drawn.set_xticks(range(len(shown)), [names[i] for i in shown], rotation=turned)
        drawn.set_xlabel("antenna")
        drawn.set_ylabel("residual rms / fitted noise")
        drawn.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(number))
        return figure_of(drawn)


def corr_text(corr: str) -> str:
    """What a legend says of a correlation: a Stokes parameter by that name."""
    return f"Stokes {corr}" if corr in STOKES_NAMES else corr


def scatter_of_antennas(
    likelihood: Likelihood, theta: NDArray[np.float64]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Sums of |residual / sigma|^2 over the baselines of each antenna, and numbers of samples.

    Returns
    -------
    dict of str to float64 (n_antenna,)
        By correlation, of all partitions together.
    dict of str to float64 (n_antenna,)
    """
    n_antenna = len(likelihood.observation.antenna_names)
    square: dict[str, Array] = {}
    number: dict[str, Array] = {}
    factors = np.atleast_1d(likelihood.noise_factor(theta))
    parts = zip(likelihood.observation.partitions, likelihood.predict(theta), factors, strict=True)
    for part, model, factor in parts:
        weight = part.weight.astype(np.float64)
        power = (weight * np.abs(part.vis - model) ** 2).sum(axis=1) / factor**2
        count = np.count_nonzero(weight, axis=1).astype(np.float64)
        for k, corr in enumerate(part.corr_type):
            for into, values in ((square, power[:, k]), (number, count[:, k])):
                total = into.setdefault(corr, np.zeros(n_antenna))
                total += np.bincount(part.antenna1, values, minlength=n_antenna)
                cross = part.antenna1 != part.antenna2
                total += np.bincount(part.antenna2[cross], values[cross], minlength=n_antenna)
    return square, number
