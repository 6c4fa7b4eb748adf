"""What a user writes in a sky model: sources, spectra, images, beams, pointing, noise, constraints."""
