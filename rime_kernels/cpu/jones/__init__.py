"""Sources seen through beams of 2x2 Jones matrices, on the CPU: loops of their own."""
