"""What a sampler leaves: samples, their table, their file, and comparison of models by evidence."""
