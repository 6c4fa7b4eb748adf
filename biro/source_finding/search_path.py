"""The steps of a search, and when no further one is worth its parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from biro.source_finding.evidence import DetectionEvidence, Judged

PATIENCE = 4
"""Steps of little progress after which the search ends where none of them is worth its parameters."""
PROGRESS = 0.05
"""A step that lowers ln chi2 by so much is no little progress."""


class SearchPath:
    """The fits that a search went through.

    Parameters
    ----------
    n_vis : int
        Number of visibilities.
    """

    def __init__(self, n_vis: int) -> None:
        self._n_vis, self._n_slow, self._steps = n_vis, 0, list[Judged]()

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, i: int) -> Judged:
        return self._steps[i]

    def add(self, judged: Judged) -> None:
        """Add a step."""
        self._steps.append(judged)

    def cut(self, length: int) -> None:
        """Go back to fewer steps."""
        del self._steps[length:]
        self._n_slow = 0

    def judge_again(self, evidence: DetectionEvidence) -> None:
        """Judge all steps as the evidence now is."""
        self._steps = [evidence.judge(judged.fit) for judged in self._steps]

    def best(self, evidence: DetectionEvidence, coherence: float) -> int:
        """The step after which no other was worth its parameters.

        What is left after the last step says how coherent errors are; before, structure that was not found
        makes residuals alike.
        """
        scores: Sequence[float] = [evidence.score(judged, coherence) for judged in self._steps[1:]]
        return 1 + int(np.argmin(scores)) if scores else 0

    def is_stalled(self, evidence: DetectionEvidence, coherence: float) -> bool:
        """Whether the last steps made little progress, and none of them is worth its parameters."""
        gain = self._steps[-2].minus_2_log - self._steps[-1].minus_2_log
        self._n_slow = 0 if gain > PROGRESS * 2.0 * self._n_vis else self._n_slow + 1
        return min(self._n_slow, len(self) - 1 - self.best(evidence, coherence)) >= PATIENCE
