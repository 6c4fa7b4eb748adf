"""Many fits: one for each data set and sky model, over processes or any other executor."""
