"""The posterior: samples, their table and file, and the comparison of models by evidence."""
