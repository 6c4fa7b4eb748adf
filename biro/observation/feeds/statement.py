"""One statement about feed rotation: what is assumed, whether it matters, and how to change it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.errors import BiroError
from biro.models.components.antenna_terms.mounts import MOUNTS
from biro.observation.feeds.feeds import FeedAngles

if TYPE_CHECKING:
    from biro.models import SkyModel

Array = NDArray[np.float64]
MANY_TIMES = 200
"""Number of times, evenly spread, that are looked at in longer observations."""
SMALL = np.radians(0.01)
"""Angles below which nothing is said to turn, rad."""
HOW = 'If they are not, write [feeds] rotation = "present" into the model'
_ASSUMED = "biro assumes that the data ({}) are corrected for parallactic angle"


def assumed(
    partitions: Sequence[FeedAngles],
    columns: str,
    mounts: Mapping[str, str] | None = None,
    turned: bool = False,
) -> str:
    """What is assumed about feed rotation where a model does not say that it is in the data.

    Parameters
    ----------
    partitions : sequence of FeedAngles
        Those whose correlations are those of feeds.
    columns : str
        What the visibilities are called.
    mounts : mapping of antenna name to mount, optional
        What a model gives.
    turned : bool
        Whether a model has leakage or gains, which turn with the feeds: A = P^H G D P.
    """
    if not partitions:
        return (
            "the data are Stokes parameters. biro assumes that they come from data corrected for "
            "parallactic angle"
        )
    text, unknown = _mounts(partitions, mounts)
    if unknown:
        return f"{text}. {_ASSUMED.format(columns)}. {HOW}"
    try:
        angles = [_thinned(each).feed_angle(mounts, each.antenna_names) for each in partitions]
    except BiroError as error:
        return f"{text}. {_ASSUMED.format(columns)} ({error}). {HOW}"
    used = [angle[:, each.used] for angle, each in zip(angles, partitions, strict=True)]
    turn = max(float(np.ptp(np.unwrap(angle, axis=0), axis=0).max(initial=0.0)) for angle in used)
    largest = max(float(np.abs(angle).max(initial=0.0)) for angle in used)
    if largest < SMALL:
        return f"{text}. The feeds do not rotate on the sky"
    corrected = all(each.feeds.corrected for each in partitions)
    state = _ASSUMED.format(columns) + ("" if corrected else ", as most calibrated data are")
    how = f"{'Leakage and gains of the model rotate with the feeds. ' if turned else ''}{HOW}"
    if turn < SMALL:
        return f"feed angles are constant, {_range(used)} ({text}). {state}. {how}"
    return f"the parallactic angle changes by up to {np.degrees(turn):.3g} deg ({text}). {state}. {how}"


def applied(partitions: Sequence[FeedAngles], mounts: Mapping[str, str], angles: Sequence[Array]) -> str:
    """What is applied where a model says that rotation is in the data.

    Parameters
    ----------
    partitions : sequence of FeedAngles
    mounts : mapping of antenna name to mount
        What the model gives.
    angles : sequence of float64 (n_time, n_antenna), rad
    """
    used = [angle[:, each.used] for angle, each in zip(angles, partitions, strict=True)]
    if all(each.feeds.given is not None for each in partitions):
        return f"biro applies the given feed angles to the model, {_range(used)}"
    text = (
        f"biro applies the parallactic angle to the model, {_range(used)} ({_mounts(partitions, mounts)[0]})"
    )
    if max(float(np.abs(angle).max(initial=0.0)) for angle in used) < SMALL:
        text += ", which changes nothing"
    if any(each.feeds.corrected for each in partitions):
        text += (
            ". CAUTION: CORRECTED_DATA is usually corrected for parallactic angle already. If so, remove "
            'rotation = "present"'
        )
    return text


def instrument_lines(partitions: Sequence[FeedAngles], columns: str, sky: SkyModel) -> list[str]:
    """What a model does to feeds, and which tables of gains it applies; or what is assumed of feeds.

    Parameters
    ----------
    partitions : sequence of FeedAngles
        Those whose correlations are those of feeds.
    columns : str
        What the visibilities are called.
    sky : SkyModel
        With the tables of its gains in memory.
    """
    from biro.models.components.antenna_terms.feeds import Feeds

    feeds = sky.feeds or Feeds()
    turned = sky.leakage is not None or bool(sky.gains)
    if feeds.rotation == "none":
        lines = ['the data have no parallactic rotation ([feeds] rotation = "none" in the model)']
    elif feeds.rotation == "present" and partitions:
        own = [[n for n in each.antenna_names if feeds.offset_of(n) is not None] for each in partitions]
        pairs = zip(partitions, own, strict=True)
        lines = [applied(partitions, feeds.mounts, [each.feed_angle(feeds.mounts, n) for each, n in pairs])]
    else:
        lines = [assumed(partitions, columns, feeds.mounts, turned)]
    lines = [f"feeds: {line}" for line in lines]
    for gain in sky.gains:
        how = "nearest solutions" if gain.interpolation == "nearest" else "interpolated linearly in time"
        lines += [f"gains: {table}; {how}" for table in gain.solutions]
    return lines


def _mounts(partitions: Sequence[FeedAngles], mounts: Mapping[str, str] | None = None) -> tuple[str, bool]:
    """The mounts of all antennas with a row, in words, and whether one of them is not known."""
    kind_of: dict[str, str] = {}
    for each in partitions:
        names = zip(each.antenna_names, each.kinds(mounts), each.used, strict=True)
        kind_of |= {name: kind for name, kind, used in names if used}
    if all(each.feeds.given is not None for each in partitions):
        return "angles are given", False
    counts = Counter(kind_of.values())
    unknown = any(kind not in MOUNTS for kind in counts)
    if len(counts) == 1 and not unknown:
        return f"all mounts are {next(iter(counts))}", False
    texts = (f"{number} {kind or 'not stated'}" for kind, number in counts.most_common())
    return f"mounts: {first_few(texts)}", unknown


def _range(used: Sequence[Array]) -> str:
    low = min(float(angle.min(initial=np.inf)) for angle in used)
    high = max(float(angle.max(initial=-np.inf)) for angle in used)
    return f"{np.degrees(low):.4g} to {np.degrees(high):.4g} deg"


def _thinned(each: FeedAngles) -> FeedAngles:
    if each.time.size <= MANY_TIMES or each.feeds.given is not None:
        return each
    index = np.linspace(0, each.time.size - 1, MANY_TIMES).round().astype(np.int64)
    return replace(each, time=each.time[index])
