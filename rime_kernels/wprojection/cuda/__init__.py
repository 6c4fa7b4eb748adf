"""W-projection on a GPU."""
