"""Observations: visibilities with weights in partitions; how they are selected, averaged and summed up."""
