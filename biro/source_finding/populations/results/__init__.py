"""Results of a fit with an unknown number of sources: their number, catalogue, maps and counts."""
