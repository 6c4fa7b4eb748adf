"""Residuals that another sky model explains: each change of the model is fitted, with all of its sources."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.causes.added_source import MISSING, MISSING_EXTENDED, added_sources
from biro.diagnosis.causes.evidence import Candidate, linear
from biro.diagnosis.causes.fitted_sky import FittedSky
from biro.diagnosis.causes.samples import MOST, Complex, Index, ResidualSamples
from biro.diagnosis.causes.sky_changes import SHAPE, SkyChange, sky_changes
from biro.diagnosis.causes.sky_fit import (
    N_TRIAL,
    SkyFit,
    ThinSamples,
    fit_sky,
    free_of,
    theta_of,
)
from biro.diagnosis.causes.source import BEAM
from biro.display.formatting import plain
from biro.models.bound.model import BoundModel
from biro.models.errors import ModelError
from biro.run.interrupt import asked_to_stop

TIE = 5.0
"""Difference of ln L below which another change is named beside the best: odds of 150 to 1."""
FEW_FREE, N_JOINT = 6, 3
"""Free parameters up to which all changes are fitted with all sources; with more, so many changes are, those
that do best where the parameters of their source alone are free."""
N_BEST = 2
"""Changes that fit few data best, of which all data decide."""
N_LAST = 3
"""Steps of the last fit of these, to the samples that judge them."""


@dataclass(frozen=True, eq=False)
class _Tried:
    """A change as few data see it."""

    change: SkyChange
    model: BoundModel
    free: Index
    fit: SkyFit


def sky_candidates(samples: ResidualSamples) -> Iterator[Candidate]:
    """The changes of the sky model of `samples.sky` that explain most, fitted to the residuals."""
    base = samples.sky
    if base is None or not samples.n:
        return
    length = np.hypot(samples.uvw[0], samples.uvw[1])
    beam = BEAM / max(float(np.median(length)), 1e-300)
    thin = ThinSamples.of(samples, base.thin)
    if not thin.own.n:
        return
    tried = list(_tried(base, thin, samples, beam))
    net = {id(each): _net(each, thin.own) for each in tried}
    tried.sort(key=lambda each: -net[id(each)])
    whole = base.others.bind(base.sky)
    before = _at(samples, base.others.predict(whole, theta_of(whole, base.values, {})))
    more = _more_samples(samples, base, thin)
    for each in tried[:N_BEST]:
        near = TIE * thin.own.n / samples.n
        alike = [other for other in tried if other is not each and net[id(each)] - net[id(other)] < near]
        last = each if more is None else _fitted_again(each, base, more)
        yield _candidate(samples, base, last, before, len(tried), alike)


def _net(tried: _Tried, own: ResidualSamples) -> float:
    gain, _ = linear(own.square, tried.fit.drop, tried.change.n_new, own.n_real)
    return gain - 0.5 * tried.change.n_new * math.log(own.n_real)


def _tried(base: FittedSky, thin: ThinSamples, samples: ResidualSamples, beam: float) -> Iterator[_Tried]:
    own = base.thin.taken(base.others.bind(base.sky))
    now = thin.predict(own, theta_of(own, base.values, {})[None])[0]
    names, begun = {source.name for source in base.sky.sources}, list[tuple[_Tried, list[SkyFit], bool]]()
    changes = sky_changes(base.sky, base.values, samples, beam)
    for change in itertools.chain(changes, added_sources(base.sky, samples, beam, own.origin)):
        try:
            model = base.thin.taken(base.others.bind(change.sky))
        except ModelError:  # sources below the horizon, say
            continue
        if asked_to_stop():
            return
        free = free_of(model, names | {change.source}, {change.source})
        alone = free if len(free) <= FEW_FREE else free_of(model, {change.source}, {change.source})
        starts = [theta_of(model, base.values, start) for start in change.starts]
        first = [fit_sky(thin, now, model, start, alone, N_TRIAL) for start in starts]
        first.sort(key=lambda fit: -fit.drop)
        begun.append((_Tried(change, model, free, first[0]), first[:2], len(alone) < len(free)))
    begun.sort(key=lambda each: -_net(each[0], thin.own))
    for i, (tried, first, is_alone) in enumerate(begun):
        if is_alone and i >= N_JOINT:
            yield tried
            continue
        fits = [fit_sky(thin, now, tried.model, fit.theta, tried.free) for fit in first]
        yield replace(tried, fit=max(fits, key=lambda fit: fit.drop))


def _more_samples(samples: ResidualSamples, base: FittedSky, thin: ThinSamples) -> ThinSamples | None:
    """All samples, for the last fits; None where few data are all, or where rows have much beside them."""
    shapes = [part.vis.shape for part in samples.parts]
    rows = [np.unique(samples.row[samples.part == i]) for i in range(len(shapes))]
    size = sum(some.size * n_chan * n_corr for some, (_, n_chan, n_corr) in zip(rows, shapes, strict=True))
    if thin.own.n == samples.n or size > 2 * MOST or not all(some.size for some in rows):
        return None
    return ThinSamples.of(samples, base.others.thin(base.data, rows))


def _fitted_again(tried: _Tried, base: FittedSky, more: ThinSamples) -> _Tried:
    """A change whose parameters are fitted to more samples: the few leave it too noisy."""
    own = more.predictor.taken(base.others.bind(base.sky))
    now = more.predict(own, theta_of(own, base.values, {})[None])[0]
    model = more.predictor.taken(base.others.bind(tried.change.sky))
    return replace(tried, model=model, fit=fit_sky(more, now, model, tried.fit.theta, tried.free, N_LAST))


def _at(samples: ResidualSamples, models: Sequence[NDArray[np.complexfloating]]) -> Complex:
    """Model visibilities of partitions at samples, times `root`."""
    found = np.zeros(samples.n, np.complex128)
    for i, vis in enumerate(models):
        here = samples.part == i
        found[here] = vis[samples.row[here], samples.chan[here], samples.corr[here]]
    return found * samples.root


def _candidate(
    samples: ResidualSamples,
    base: FittedSky,
    tried: _Tried,
    before: Complex,
    n_tried: int,
    alike: Sequence[_Tried],
) -> Candidate:
    model = base.others.bind(tried.change.sky)
    change = _at(samples, base.others.predict(model, tried.fit.theta)) - before
    left = samples.residual - change
    drop = samples.square - float(np.vdot(left, left).real)
    n_new = tried.change.n_new
    gain, log_p = linear(samples.square, drop, n_new, samples.n_real, n_tried + tried.change.places)
    sky = base.changed(tried.change.sky, model, tried.fit.theta)
    after = partial(_after, samples, change, sky)
    texts = partial(_texts, samples, tried, left, sky, alike)
    return Candidate(tried.change.kind, drop, gain, n_new, log_p, after, texts)


def _after(samples: ResidualSamples, change: Complex, sky: FittedSky) -> ResidualSamples:
    moved = samples.with_values(residual=samples.residual - change, model=samples.model + change)
    return replace(moved, sky=sky)


def _texts(
    samples: ResidualSamples, tried: _Tried, left: Complex, sky: FittedSky, alike: Sequence[_Tried]
) -> tuple[str, str]:
    change = tried.change
    n_param = sum(name.split(".")[0] != "noise" for name in tried.model.parameter_names)
    now, then = (
        _chi2(samples, residual) / max(samples.n_real - n, 1)
        for residual, n in ((samples.residual, n_param - change.n_new), (left, n_param))
    )
    fall = f"chi2/dof falls from {now:.4g} to {then:.4g}"
    nearly = [each.change.action for each in alike if each.change.kind == change.kind == SHAPE]
    nearly = [each for each in nearly if each != change.action]
    also = f" Nearly as good: {nearly[0][0].lower()}{nearly[0][1:]}." if nearly else ""
    instead = f" in place of {' and '.join(change.removed)}" if change.removed else ""
    is_new = change.kind in (MISSING, MISSING_EXTENDED)
    where = "at the end of the model file" if is_new else f"in [[source]] {change.source}{instead}"
    lines = ["[[source]]"] * is_new + change.lines()
    written = "".join(f"\n      {line}" for line in lines)
    return (
        f"{change.verdict}.",
        f"{change.action}: {fall}{_values(tried, sky)}.{also} Write {where}:{written}",
    )


def _chi2(samples: ResidualSamples, residual: Complex) -> float:
    """Sum of |r|^2 with the stated weights."""
    weight = np.empty(samples.n)
    for i, part in enumerate(samples.parts):
        here = samples.part == i
        weight[here] = part.weight[samples.row[here], samples.chan[here], samples.corr[here]]
    return float(np.sum(weight * np.abs(residual / samples.root) ** 2))


def _values(tried: _Tried, sky: FittedSky) -> str:
    """Best values of what was freed."""
    names = [f"{tried.change.source}.{key}" for key in tried.change.keys]
    listed = []
    for parameter in tried.model.parameters:
        if parameter.name.split("[")[0] in names:
            key = parameter.name.split(".", 1)[1]
            value = plain(sky.values[parameter.name], 3)
            listed.append(f"{key} {value} {parameter.unit}".strip())
    return f" ({', '.join(listed)})" if listed else ""
