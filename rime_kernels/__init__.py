"""The radio interferometer measurement equation on CPU and GPU: plain arrays in, visibilities out."""
