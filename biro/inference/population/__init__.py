"""Populations: the number of sources inferred with everything else."""
