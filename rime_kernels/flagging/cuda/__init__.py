"""Interference found by a GPU: kernels, and the calls that launch them."""
