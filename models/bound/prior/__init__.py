"""The prior of a whole model: all parameters together, with constraints, and free of bounds for samplers."""
