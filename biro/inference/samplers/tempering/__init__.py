"""Non-reversible parallel tempering: chains of all temperatures side by side, with the evidence."""
