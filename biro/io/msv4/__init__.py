"""Measurement Sets of version 4."""
