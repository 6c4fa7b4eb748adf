"""Fits of all components together: the best change, and what a model hardly needs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from biro.source_finding.changes import ModelChange, simpler
from biro.source_finding.evidence import DetectionEvidence, Judged
from biro.source_finding.fitting.component import Component
from biro.source_finding.fitting.source_fit import ComponentFit, SourceFit

MAX_JOINT = 4
"""Changes of the model that are tried in fits of all components, the most promising first, before none is."""


def fitted(fitter: SourceFit, components: Iterable[Component]) -> ComponentFit | None:
    """All components fitted together; those that lose their flux are left out."""
    some = tuple(components)
    while some:
        fit = fitter.fit(some)
        good = tuple(component for component in fit.components if component.flux > 0.0)
        if len(good) == len(fit.components):
            return fit
        some = good
    return None


def best_change(
    kinds: Iterable[Iterable[ModelChange]],
    now: Judged,
    fitter: SourceFit,
    evidence: DetectionEvidence,
    *,
    forced: bool,
) -> ComponentFit | None:
    """The change that is best when all components are fitted together; None where none is good.

    Parameters
    ----------
    kinds : iterable of iterable of ModelChange
        Of each kind, the most promising one that the evidence speaks for counts.
    now : Judged
        The fit that is changed.
    fitter : SourceFit
    evidence : DetectionEvidence
    forced : bool
        A component more is good where it lowers chi2.
    """
    best, least = None, 0.0
    for some in kinds:
        for change in sorted(some, key=evidence.promise)[:MAX_JOINT]:
            joint = fitted(fitter, change.components)
            if joint is None:
                continue
            surplus = evidence.surplus(now, evidence.judge(joint), change.n_new)
            if forced and change.n_new and joint.chi2 < now.fit.chi2:
                surplus = max(surplus, 1e-9)
            if surplus > least:
                best, least = joint, surplus
                break
    return best


def simplified(
    joint: ComponentFit, fitter: SourceFit, evidence: DetectionEvidence, coherence: float = 1.0
) -> ComponentFit:
    """The joint fit without components, and shapes, that it hardly needs."""
    data, judged, tried = fitter.data, evidence.judge(joint), set[tuple[Component, ...]]()
    while True:
        scale = judged.fit.chi2 / max(1, 2 * data.n_vis - judged.fit.n_param) * coherence
        most = 2.0 * np.array([evidence.needed(n, 0, 1.0, coherence) for n in (1, 2, 1)])
        most[2] += evidence.needed(0, 1, evidence.beams(judged.components), coherence)
        for fewer, n_source in simpler(judged.fit, scale, data.spectral, most):
            if fewer in tried:
                continue
            tried.add(fewer)
            fit = fitted(fitter, fewer)
            trial = None if fit is None else evidence.judge(fit)
            if trial is not None and not evidence.surplus(trial, judged, n_source, coherence) > 0.0:
                judged = trial
                break
        else:
            return judged.fit
