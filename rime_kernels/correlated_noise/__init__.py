"""Noise that is correlated between neighbouring samples: its covariance, and sums over such samples."""
