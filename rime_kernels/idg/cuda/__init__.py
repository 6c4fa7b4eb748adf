"""Image-domain gridding on the GPU."""
