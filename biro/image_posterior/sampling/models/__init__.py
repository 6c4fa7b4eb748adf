"""Models of the data of an image as functions of JAX: visibilities, closures, gains, leakage and noise."""
