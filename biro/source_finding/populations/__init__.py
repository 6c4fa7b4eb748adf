"""Populations of sources whose number is inferred with everything else."""
