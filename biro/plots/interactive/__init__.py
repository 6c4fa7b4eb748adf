"""Pictures to look into with a mouse: labels name what lies below it, a frame zooms. Figures of plotly."""

from biro.plots.interactive.corner import corner
from biro.plots.interactive.images import images
from biro.plots.interactive.uv import uv

__all__ = ["corner", "images", "uv"]
