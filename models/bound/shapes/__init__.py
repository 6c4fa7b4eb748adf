"""Sources of a user as sources of the kernels: their parts, and the parameters of their profiles."""
