"""Antenna beams as 2 x 2 Jones matrices: read from FITS cubes, or sampled from a function."""
