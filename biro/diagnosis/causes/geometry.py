"""Residuals of sources that the data have at other places: uvw that are turned, scaled or of another sign."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import minimize_scalar

from biro.diagnosis.causes.bright_places import BrightPlaces, candidate
from biro.diagnosis.causes.brightness import fitted
from biro.diagnosis.causes.evidence import Candidate
from biro.diagnosis.causes.least_squares import SolvedTerms
from biro.diagnosis.causes.samples import Array, Complex, ResidualSamples
from biro.diagnosis.causes.source import EARTH, MOST_THIN, StokesView, template
from biro.display.formatting import percent, plain

TURN, SCALE = np.deg2rad(3.0), 0.03
"""Largest angle, rad, and part of 1 by which uvw may be off."""
PER_FRINGE = 3.0
"""Steps of either for each fringe that a source moves by on the longest baseline."""
MOST_STEPS = 40
CHECK = "Check times, uvw, and the frame of the coordinates."


@dataclass(frozen=True)
class UvwChange:
    """uvw as they should be: turned about the pole of (u, v), rad, scaled, of another sign."""

    turn: float = 0.0
    scale: float = 1.0
    is_mirrored: bool = False
    is_w_mirrored: bool = False

    def of(self, uvw: Array) -> Array:
        """The uvw (3, n), changed."""
        s, c, (u, v, w) = np.sin(self.turn), np.cos(self.turn), uvw
        sign = -self.scale if self.is_mirrored else self.scale
        of_w = -sign if self.is_w_mirrored else sign
        return np.array([sign * (c * u + s * v), sign * (c * v - s * u), of_w * w])


ChangeOf = Callable[[float], UvwChange]
TextsOf = Callable[[float], tuple[str, str]]


def geometry_candidates(samples: ResidualSamples, places: Sequence[BrightPlaces]) -> Iterator[Candidate]:
    """The sources of the model, with fluxes that are fitted anew, at uvw that are changed in one way.

    Of a single source such a change is that of its place.
    """
    for each in places:
        view = StokesView.of(samples, each.field, "I")
        if len(each.sources) < 2 or not view.own.n:
            continue
        yield from _of_field(samples, view, each)


def _of_field(samples: ResidualSamples, view: StokesView, places: BrightPlaces) -> Iterator[Candidate]:
    own = view.own
    thin = own.only(np.arange(own.n) % -(-own.n // MOST_THIN) == 0)
    old = _model(thin, places)
    reach = max(float(np.hypot(s.east, s.north)) for s in places.sources)
    longest = float(np.quantile(np.hypot(own.uvw[0], own.uvw[1]), 0.9))
    step = 1.0 / (PER_FRINGE * max(longest * reach, 1e-9))
    kinds: tuple[tuple[ChangeOf, float, TextsOf], ...] = (
        (lambda x: UvwChange(turn=x), TURN, _turned),
        (lambda x: UvwChange(scale=1.0 + x), SCALE, _scaled),
    )
    for change_of, most, texts in kinds:
        n = min(MOST_STEPS, int(most / step))

        def cost(x: float, change_of: ChangeOf = change_of) -> float:
            return -_drop(thin, places, change_of(x), old)[0]

        grid = step * np.arange(-n, n + 1)
        best = float(grid[np.argmin([cost(x) for x in grid])])
        best = float(minimize_scalar(cost, bounds=(best - step, best + step), method="bounded").x)
        yield _candidate(samples, view, places, change_of(best), 2 * n + 1, partial(texts, best))
    yield _candidate(samples, view, places, UvwChange(is_mirrored=True), 1, _mirrored)
    yield _candidate(samples, view, places, UvwChange(is_w_mirrored=True), 1, _w_mirrored)


def _model(own: ResidualSamples, places: BrightPlaces) -> Complex:
    """The sources of the model, complex128 (n,)."""
    now = np.array([template(own, source) for source in places.sources])
    return np.asarray(np.asarray(places.fluxes) @ now)


def _drop(
    own: ResidualSamples, places: BrightPlaces, change: UvwChange, old: Complex
) -> tuple[float, Complex]:
    """Decrease of sum |r|^2 by sources at changed uvw in place of those of the model, and their change."""
    uvw = change.of(own.uvw)
    new = np.array([template(own, source, uvw=uvw) for source in places.sources])
    data = own.residual + old
    fluxes, _ = fitted(own.with_values(residual=data), list(new))
    whole = fluxes @ new
    left = data - whole
    return own.square - float(np.vdot(left, left).real), whole - old


def _candidate(
    samples: ResidualSamples,
    view: StokesView,
    places: BrightPlaces,
    change: UvwChange,
    n_place: float,
    texts: Callable[[], tuple[str, str]],
) -> Candidate:
    own = view.own
    drop, whole = _drop(own, places, change, _model(own, places))
    solved = SolvedTerms([], [], np.zeros(len(own.mixture)), drop)
    n_term = len(places.sources) + 1
    return candidate(samples, view, "wrong uvw", solved, n_term, n_place, whole, texts)


def _turned(angle: float) -> tuple[str, str]:
    seconds = abs(angle) / EARTH
    return (
        f"The uvw are turned by {plain(np.degrees(angle), 2, '+')} deg against the sources of the model, as "
        f"near the pole by times that are {plain(seconds)} s off.",
        CHECK,
    )


def _scaled(part: float) -> tuple[str, str]:
    word = "long" if part < 0 else "short"
    return (
        f"The uvw in wavelengths are {percent(abs(part))} too {word}.",
        "Check the channel frequencies, the unit of uvw, and the positions of the sources.",
    )


def _mirrored() -> tuple[str, str]:
    return (
        "The sky is rotated by 180 deg against the model, so uvw or phases have the opposite sign.",
        'Read the data with `--convention fourier` (convention="fourier" in Python).',
    )


def _w_mirrored() -> tuple[str, str]:
    return ("w has the wrong sign relative to u and v.", "Correct the sign of w in the data.")
