"""The child process in which casacore runs: `python -m biro.measurement_set.child`."""
