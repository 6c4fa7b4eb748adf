"""Names among which an option chooses; the command line and Python take the same."""

from typing import Literal

Weights = Literal["stated", "scatter", "equal"]
"""Where weights come from: the data set, the scatter of each baseline, or nowhere."""
SmearingMode = Literal["auto", "on", "off"]
"""Averages over integrations and channels always, never, or where it makes a difference."""
Gains = Literal["sample", "marginalise", "solve", "closures"]
"""How gains are treated: as the model has them, not at all, integrated over, or solved for."""
Feeds = Literal["linear", "circular"]
Sampler = Literal["emcee", "dynesty", "dynesty-dynamic", "tempering", "nuts", "none"]
Average = Literal["none", "cells"]
"""Whether few visibilities stand for those of cells."""
Imaged = Literal["data", "model", "residual"]
Weighting = Literal["natural", "uniform", "briggs"]
SpectralFrame = Literal["TOPO", "GEO", "BARY", "LSRK"]
AxisKind = Literal["frequency", "velocity"]
Density = Literal["plane", "cube"]
"""Whose uv density the weights of a cube follow from."""
