"""Kinds of data, sound and hostile, that `honesty.py` fits; simulated without biro."""
