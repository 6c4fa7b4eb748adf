"""Whether a model fits its data, and what is wrong where it does not."""
