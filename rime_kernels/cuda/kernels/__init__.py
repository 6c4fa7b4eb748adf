"""The CUDA kernels of the measurement equation and of its adjoint."""
