"""W-projection on the CPU."""
