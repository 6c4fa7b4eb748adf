"""Pictures of posteriors, of data against a model and of SBC; each is a matplotlib Figure."""

from biro.plots.antenna_residuals import antenna_residuals
from biro.plots.baselines import baseline, baselines, closure_amplitudes, closure_phases
from biro.plots.corner import corner, marginal, traces
from biro.plots.data import residuals, uv
from biro.plots.gains import gains, solved_gains
from biro.plots.numbers import numbers
from biro.plots.sky import sky

__all__ = [
    "antenna_residuals",
    "baseline",
    "baselines",
    "closure_amplitudes",
    "closure_phases",
    "corner",
    "gains",
    "marginal",
    "numbers",
    "residuals",
    "sky",
    "solved_gains",
    "traces",
    "uv",
]
