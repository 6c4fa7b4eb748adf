"""`average="cells"`: few visibilities stand for those of cells, with all of chi-squared."""
