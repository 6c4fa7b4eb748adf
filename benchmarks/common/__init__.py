"""What several benchmarks share: options, timing, roofs of the machine, results as files and tables."""
