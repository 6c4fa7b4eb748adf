"""Processes of MPI that share the data of a likelihood: rank 0 runs the program, the others serve it."""
