"""The kernel over rows, and its adjoint."""
