"""Samples of an image by JAX and nifty: state, likelihood, and variational inference."""
