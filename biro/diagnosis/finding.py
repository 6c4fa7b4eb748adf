"""A kind of misfit that the residuals show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One kind of misfit, as a test of the residuals measured it.

    Attributes
    ----------
    kind : str
        "missing source", "antenna gain", "bad visibility", "correlated in time", ...
    significance : float
        How unlikely it is by chance, in standard deviations of a normal distribution; the number of places
        that the test looked at is counted (look-elsewhere).
    explained : float
        Part of the excess of chi2 over its degrees of freedom that this kind explains, from 0 to 1; beside
        outliers, of the excess that these leave.
    verdict : str
        One sentence: what is wrong, with the number that a user wants and its unit.
    remedy : str
        One sentence: what to do, with the option or the entry of the model.
    error_factor : float
        How many times larger the errors of the fit should be because of it; 1 where it does not say.
    """

    kind: str
    significance: float
    explained: float
    verdict: str
    remedy: str
    error_factor: float = 1.0
