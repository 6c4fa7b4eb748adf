"""The likelihood of a sky model, given an observation: noise, precision and Fisher information."""
