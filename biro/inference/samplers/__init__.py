"""One adapter for each sampler, and one function, `biro.sample`, that runs any of them."""
