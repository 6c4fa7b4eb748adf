"""A sky model bound to data: theta in; priors and arrays of sources for the kernels out; derivatives back."""
