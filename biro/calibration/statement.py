"""What a solver found, in words for people and as a dict for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from biro.calibration.window import WindowSolution
from biro.display.formatting import first_few, number_of
from biro.files.json_value import JsonValue
from biro.models.bound.antenna_terms.segments import Segments
from biro.observation.observation import Observation
from biro.observation.selection import to_utc
from rime_kernels.gain_solving import Reason


class StatedGains(Protocol):
    """What is said something about; see `biro.calibration.solved_gains.SolvedGains`."""

    @property
    def observation(self) -> Observation:
        """What gains were solved from."""
        ...

    @property
    def windows(self) -> tuple[WindowSolution, ...]:
        """One for each spectral window."""
        ...

    @property
    def segments(self) -> Segments:
        """The solution intervals."""
        ...

    @property
    def settings(self) -> dict[str, JsonValue]:
        """What was asked for."""
        ...

    @property
    def reference(self) -> str:
        """The reference antenna."""
        ...

    @property
    def fits(self) -> bool:
        """Whether the sky with these gains fits."""
        ...

    @property
    def verdict(self) -> tuple[str, ...]:
        """What is wrong where it does not."""
        ...

    @property
    def remarks(self) -> tuple[str, ...]:
        """What else is to be said."""
        ...

    @property
    def n_uncorrected(self) -> int:
        """Visibilities that a gain is lacking for."""
        ...


WORDS = {
    Reason.NO_DATA: "no data",
    Reason.FEW_BASELINES: "too few baselines",
    Reason.UNCONNECTED: "not connected to the reference antenna",
    Reason.UNDETERMINED: "not constrained by the data",
    Reason.NOT_CONVERGED: "not converged",
    Reason.LOW_SNR: "signal-to-noise ratio too low",
}


def counts(solved: StatedGains) -> dict[Reason, int]:
    """How many gains have a solution, and how many have none for each reason.

    Of the antennas and feeds that the data have, at the intervals in which a window has data at all.
    """
    total = dict.fromkeys(Reason, 0)
    for window in solved.windows:
        reason = _counted(solved, window)
        for each in Reason:
            total[each] += int(np.count_nonzero(reason == each))
    return total


def _counted(solved: StatedGains, window: WindowSolution) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    """Reasons, (n_interval, n_block, n_antenna, n_feed); -1 where no data can give a gain."""
    parts = [solved.observation.partitions[i] for i in window.partitions]
    used = np.any([part.used_antennas for part in parts], axis=0)
    there = np.zeros(len(window.gain), bool)
    for i in window.partitions:
        there[solved.segments.of_time[i]] = True
    reason = window.reason[..., list(window.feeds)].copy()
    reason[~there] = -1
    reason[:, :, ~used] = -1
    return reason


def chi2(solved: StatedGains) -> tuple[float, float, int, int]:
    """chi2 before and after, of how many visibilities, and how many real numbers were solved for."""
    windows = solved.windows
    before = float(sum(window.chi2_before.sum() for window in windows))
    after = float(sum(window.chi2_after.sum() for window in windows))
    n_vis = int(sum(window.n_vis.sum() for window in windows))
    return before, after, n_vis, int(sum(window.n_free.sum() for window in windows))


def in_words(solved: StatedGains) -> str:
    """A few lines: a verdict, what was solved for, chi-squared, flagged gains, and which antenna stood in."""
    return "\n".join([*solved.verdict, *_what_was_solved(solved), *_remarks(solved)])


def _what_was_solved(solved: StatedGains) -> list[str]:
    before, after, n_vis, n_free = chi2(solved)
    n_dof = 2 * n_vis - n_free
    settings = solved.settings
    n_interval, total = int(solved.segments.middle.size), counts(solved)
    n_block = sum(window.gain.shape[1] for window in solved.windows)
    return [
        f"gains: {settings['mode']}, feeds {settings['feeds']}, "
        f"{number_of(n_interval, 'solution interval')} ({settings['interval']}), "
        f"{number_of(n_block, 'block')} of channels in {number_of(len(solved.windows), 'spectral window')}; "
        f"{'parallel and cross hands' if settings['cross_hands'] else 'parallel hands only'}; "
        f"reference {solved.reference}",
        f"chi2: {before:.6g} before, {after:.6g} after, "
        f"{number_of(n_vis, 'visibility', 'visibilities')} in solutions"
        + (f"; {after / n_dof:.4g} per degree of freedom ({n_dof})" if n_dof > 0 else ""),
        f"solutions: {total[Reason.SOLVED]} of {number_of(sum(total.values()), 'gain')}",
    ]


def _remarks(solved: StatedGains) -> list[str]:
    """Flagged gains, antennas that stood in for the reference, and what else is to be said."""
    total = counts(solved)
    flagged = [
        f"flagged: {total[reason]} {WORDS[reason]}{_where(solved, reason)}"
        for reason in WORDS
        if total[reason]
    ]
    return [*flagged, *_stand_ins(solved), *solved.remarks]


def _where(solved: StatedGains, reason: Reason) -> str:
    """The antennas and the intervals of the gains without solution."""
    names, places = [], []
    for window in solved.windows:
        interval, _, antenna, _ = np.nonzero(_counted(solved, window) == reason)
        names += [solved.observation.antenna_names[i] for i in np.unique(antenna)]
        places += np.unique(interval).tolist()
    intervals = sorted(set(places))
    if len(intervals) == solved.segments.middle.size:
        when = "in all intervals" if len(intervals) > 1 else ""
    else:
        offset = solved.observation.utc_offset
        times = [to_utc(float(solved.segments.middle[i]), offset) for i in intervals]
        when = f"in {number_of(len(times), 'interval')} (about {first_few(times)})"
    return f": {first_few(dict.fromkeys(names))}{' ' * bool(when)}{when}"


def _stand_ins(solved: StatedGains) -> Iterator[str]:
    """Which antennas stood in for the reference, and how often."""
    names = solved.observation.antenna_names
    number = names.index(solved.reference)
    chosen = np.concatenate([window.reference.ravel() for window in solved.windows])
    others = chosen[(chosen >= 0) & (chosen != number)]
    for antenna in np.unique(others).tolist():
        yield (
            f"reference: {names[antenna]} replaces {solved.reference} in "
            f"{np.count_nonzero(others == antenna)} of {np.count_nonzero(chosen >= 0)} solutions, because "
            "the reference has too little data there. Phases jump at these solutions"
        )


def as_dict(solved: StatedGains) -> dict[str, JsonValue]:
    """The figures of the text, for programs."""
    before, after, n_vis, n_free = chi2(solved)
    total = counts(solved)
    return {
        "settings": solved.settings,
        "reference": solved.reference,
        "n_interval": int(solved.segments.middle.size),
        "chi2_before": before,
        "chi2_after": after,
        "n_vis": n_vis,
        "n_free": n_free,
        "n_solved": total[Reason.SOLVED],
        "flagged": {reason.name.lower(): total[reason] for reason in WORDS},
        "n_uncorrected": solved.n_uncorrected,
        "fits": solved.fits,
        "remarks": [*solved.verdict, *_remarks(solved)],
    }
