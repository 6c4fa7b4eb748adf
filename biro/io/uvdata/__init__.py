"""Data sets that pyuvdata reads: UVH5, MIRIAD, MIR."""
