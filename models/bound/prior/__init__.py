"""The prior of a whole model: all parameters together, its constraints, and parameters without bounds."""
