"""Noise that differs among visibilities: sums over them and derivatives."""
