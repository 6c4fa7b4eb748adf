"""The CPU's engine: loops over vectors of visibilities."""
