"""Models, data and calls of `benchmarks/golden.py`."""
