"""Tests of the residuals for one kind of misfit each."""
