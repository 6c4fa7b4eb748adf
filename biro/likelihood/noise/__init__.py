"""Noise whose variance follows the model: its information, and what it is a fraction of."""
