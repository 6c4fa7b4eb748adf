"""Inference for any likelihood: the maximum of a posterior, samplers, and the posterior."""
