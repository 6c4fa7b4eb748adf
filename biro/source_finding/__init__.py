"""Sources found in a dirty image, fitted to the visibilities, and proposed as a sky model."""
