"""What every gridder shares: grids of images, rows as items of work, planes, tapers, facets."""
