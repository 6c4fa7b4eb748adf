"""The maximum of a posterior: the climb to it, saddle points, and the normal distribution about it."""
