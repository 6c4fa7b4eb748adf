"""What was observed: visibilities with weights in partitions; selecting, averaging and summing them up."""
