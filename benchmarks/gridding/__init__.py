"""The problems of image-domain gridding, and what is measured of them on a CPU and on a GPU."""
