"""Gains of antennas as a cause of a misfit."""
