"""Pictures of posteriors, of data against a model and of SBC; each is a matplotlib Figure."""

from biro.plots.data import residuals, uv
from biro.plots.posterior import corner, sky, traces

__all__ = ["corner", "residuals", "sky", "traces", "uv"]
