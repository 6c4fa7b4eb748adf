"""Gains of antennas in files: CASA tables, H5parm files, and those that simulations wrote."""

from biro.io.gain_files.tables import read_gains, with_gains_read, write_gains

__all__ = ["read_gains", "with_gains_read", "write_gains"]
