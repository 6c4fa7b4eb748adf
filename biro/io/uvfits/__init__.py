"""Read UVFITS: random groups of visibilities with tables of antennas, frequencies and sources."""
