"""Sky models bound to data: they turn theta into priors and arrays of sources, with derivatives."""
