"""A likelihood as the climb to its maximum and the samplers use it: in batches, with checked values."""
