"""Tests of the residuals of a fit, one for each kind of misfit."""
