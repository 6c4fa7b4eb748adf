"""Image-domain gridding on the CPU."""
