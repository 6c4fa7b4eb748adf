"""The child process in which casacore runs: `python -m biro.io.measurement_set.child`."""
