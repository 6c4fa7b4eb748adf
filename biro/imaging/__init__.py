"""Images: FITS files in and out, images as predicted visibilities, and dirty images of visibilities."""
