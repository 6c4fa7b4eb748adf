"""What the sky and the instrument are: sources, spectra, beams, noise, and priors on them."""
