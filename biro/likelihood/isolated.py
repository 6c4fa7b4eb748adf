"""The sources that single parameters act on, apart from all others: a batch, a few in each entry."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rime_kernels import Gradient, Sources
from rime_kernels.arrays import Beam
from rime_kernels.jones_beam import JonesBeam

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Isolated:
    """Parameters whose sources are of the same kinds, with the same spectra, so that they make one batch.

    Attributes
    ----------
    members : int64 (n,)
        Which of the parameters.
    which : int64 (n, n_each)
        The sources that each acts on, ascending.
    images : bool (n, n_template)
        The templates that each acts on.
    """

    members: Index
    which: Index
    images: NDArray[np.bool_]

    def of(self, sources: Sources) -> Sources:
        """These sources alone, of a batch with an entry for each of `members`."""
        rows, first = np.arange(len(self.which))[:, None], self.which[0]
        shaped, profiled = self._from(sources.n_point), self._from(sources.n_point + sources.n_gaussian)

        def chosen(values: Array, index: Index = self.which) -> Array:
            return np.ascontiguousarray(values[rows, index])

        def of_kind(values: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if values is None else values[first]

        scale = sources.template_scale
        profile = None if sources.profile is None or not profiled.size else chosen(sources.profile, profiled)
        kind = None if profile is None or sources.profile_kind is None else sources.profile_kind[profiled[0]]
        stokes = np.ascontiguousarray(np.moveaxis(np.moveaxis(sources.stokes, 2, 1)[rows, self.which], 1, 2))
        return Sources.unchecked(
            chosen(sources.lm),
            stokes,
            sources.ref_freq[first],
            chosen(sources.spectral_terms),
            sources.log_spectrum[first],
            chosen(sources.shape, shaped),
            _beam(sources.beam, first),
            polarised=sources.polarised,
            template_scale=None if scale is None else np.where(self.images, scale, 0.0),
            template_shift=sources.template_shift,
            profile=profile,
            profile_kind=kind,
            antenna_terms=sources.antenna_terms,
            spectral_form=of_kind(sources.spectral_form),
            faraday=None if sources.faraday is None else chosen(sources.faraday),
        )

    def spread(self, gradient: Gradient, sources: Sources) -> Gradient:
        """Derivatives with respect to all sources, from those with respect to these: the adjoint of `of`."""
        rows = np.arange(len(self.which))[:, None]
        index = {
            "lm": self.which,
            "spectral_terms": self.which,
            "faraday": self.which,
            "shape": self._from(sources.n_point),
            "profile": self._from(sources.n_point + sources.n_gaussian),
        }
        spread: dict[str, Any] = {field.name: getattr(gradient, field.name) for field in fields(gradient)}
        for name, chosen in index.items():
            like = getattr(sources, name)
            if like is not None:
                whole = np.zeros(like.shape)
                if chosen.size:
                    whole[rows, chosen] = spread[name]
                spread[name] = whole
        stokes = np.zeros(sources.stokes.shape)
        np.moveaxis(stokes, 2, 1)[rows, self.which] = np.moveaxis(gradient.stokes, 2, 1)
        spread["stokes"] = stokes
        if gradient.template_scale is not None:
            spread["template_scale"] = np.where(self.images, gradient.template_scale, 0.0)
        return Gradient(**spread)

    def parts(self, n: int) -> list[Isolated]:
        """Parts of this batch with at most n parameters each."""
        starts = range(0, len(self.members), n)
        cut = [slice(start, start + n) for start in starts]
        return [Isolated(self.members[some], self.which[some], self.images[some]) for some in cut]

    def _from(self, start: int) -> Index:
        """Members among the sources that come from `start` on, counted from there, (n, n_some)."""
        return self.which[:, self.which[0] >= start] - start


def isolated(without: Sources, changed: Sources) -> list[Isolated]:
    """Parameters in groups, by the sources that change with each.

    Parameters
    ----------
    without : Sources
        A batch of one: with parameters at some values.
    changed : Sources
        An entry for each parameter, which alone has another value.
    """
    differs = np.zeros((changed.n_batch, changed.n_source), bool)
    for name in ("stokes", "spectral_terms"):
        old, new = getattr(without, name), getattr(changed, name)
        axis = 2 if name == "stokes" else 1
        others = tuple(i for i in range(1, new.ndim) if i != axis)
        differs |= (new != old).any(axis=others)
    if changed.profile is not None and without.profile is not None:
        differs[:, changed.n_source - changed.n_profile :] |= (changed.profile != without.profile).any(axis=2)
    images = np.zeros((changed.n_batch, 0), bool)
    if changed.template_scale is not None and without.template_scale is not None:
        images = changed.template_scale != without.template_scale
    groups: dict[tuple[object, ...], list[int]] = {}
    for k in range(changed.n_batch):
        groups.setdefault(_signature(changed, np.flatnonzero(differs[k])), []).append(k)
    return [
        Isolated(np.array(k), np.array([np.flatnonzero(differs[i]) for i in k], np.int64), images[k])
        for k in groups.values()
    ]


def _signature(sources: Sources, which: Index) -> tuple[object, ...]:
    """What sources must have in common to stand in one batch."""
    rank = (which >= sources.n_point).astype(int) + (which >= sources.n_point + sources.n_gaussian)
    kind = np.zeros(len(which), np.int32)
    if sources.profile_kind is not None:
        start = sources.n_source - sources.n_profile
        kind[rank == 2] = sources.profile_kind[which[rank == 2] - start]
    form = np.zeros(0, np.int32) if sources.spectral_form is None else sources.spectral_form[which]
    beam = sources.beam
    applies = beam.applies[which] if isinstance(beam, JonesBeam) and beam.applies is not None else kind[:0]
    arrays = (rank, kind, form, sources.ref_freq[which], sources.log_spectrum[which], applies)
    return tuple(array.tobytes() for array in arrays)


def _beam(beam: Beam | JonesBeam | None, which: Index) -> Beam | JonesBeam | None:
    """The beam as these sources see it."""
    if not isinstance(beam, JonesBeam) or beam.applies is None:
        return beam
    chosen = JonesBeam.unchecked(beam, scale=beam.scale, pointing=beam.pointing, turn=beam.turn)
    object.__setattr__(chosen, "applies", beam.applies[which])
    return chosen
