"""Groups of gains on a GPU, a block of threads each: the maximum, the determinant, its derivatives."""
