"""What a user writes for sources that are neither points nor Gaussians."""
