"""What a fit of an image returns: the result, its files, pictures, regions and polarisation."""
