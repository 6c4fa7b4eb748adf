"""The posterior of a number of sources."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from biro.display.arguments import NUMBERS, takes
from biro.display.style import COLOUR, COLUMN, drawing_on, figure_of
from biro.many_fits.number_table import NumberTable


@takes(table=NUMBERS)
def numbers(table: NumberTable, ax: Axes | None = None) -> Figure:
    """P(number) as bars with the 68 % interval from the errors of the evidences, and the prior as dots.

    Parameters
    ----------
    table : NumberTable
        Of `biro.fit_numbers`.
    ax : matplotlib axes, optional
        Default: those of a new figure.
    """
    k, probability = table.numbers, table.probability
    low, high = table.interval.T
    # Percentiles of a skewed distribution may leave out the value of the middle.
    error = np.maximum([probability - low, high - probability], 0.0)
    with drawing_on(ax, (COLUMN, 2.4)) as drawn:
        drawn.bar(k, probability, 0.8, color=COLOUR, alpha=0.6, label="posterior")
        drawn.errorbar(k, probability, error, fmt="none", ecolor=COLOUR, elinewidth=1.0)
        drawn.plot(k, np.exp(table.log_prior), "o", color="black", ms=3.0, label="prior")
        drawn.set(xlabel=f"sources of {table.population}", ylabel="probability", ylim=(0.0, None))
        drawn.xaxis.set_major_locator(MaxNLocator(integer=True))
        drawn.legend()
        return figure_of(drawn)
