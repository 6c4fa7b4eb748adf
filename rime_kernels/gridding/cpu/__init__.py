"""What gridders share on the CPU: transforms, the adder, layers of work, correlations of sums."""
