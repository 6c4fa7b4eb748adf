"""Bayesian sky-model inference for radio interferometry."""

__version__ = "0.1.0"
