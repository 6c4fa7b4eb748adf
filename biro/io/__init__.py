"""Files of data, skies, gains and ionospheres in all formats."""
