"""How CUDA kernels are cut into blocks and tiles: candidates, guesses, and what tuning has found."""
