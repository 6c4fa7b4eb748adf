"""Interference found in visibilities: strategies, waterfalls of baselines, causes and statistics."""
