"""Changes of visibilities with changes of sources, J v, and products of them."""
