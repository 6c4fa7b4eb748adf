"""The density of the data given a sky: of visibilities or of closures, for each kind of noise."""
