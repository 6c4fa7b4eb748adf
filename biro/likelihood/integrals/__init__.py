"""Integrals over fluxes and gains, or their best values, at each theta."""
