"""Independent tasks over processes: the death of one costs its task at most, and stops are heard."""
