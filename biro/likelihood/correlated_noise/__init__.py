"""Visibilities whose noise is correlated between neighbouring times or channels."""
