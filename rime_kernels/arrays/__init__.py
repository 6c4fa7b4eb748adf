"""What the measurement equation is evaluated from: rows, sources, beams, terms of the antennas."""

from rime_kernels.arrays.antenna_terms import AntennaTerms
from rime_kernels.arrays.beam import Beam, BeamKind
from rime_kernels.arrays.rows import Rows
from rime_kernels.arrays.sources import Sources

__all__ = ["AntennaTerms", "Beam", "BeamKind", "Rows", "Sources"]
