"""Quantities of a model: units, fixed values, priors and ties."""
