"""The kernel over tiles of antennas, and its adjoint."""
