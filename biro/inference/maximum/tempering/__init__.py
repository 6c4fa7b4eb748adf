"""The whole posterior by tempering: what of it no climb has found, and what draws do not cover."""
