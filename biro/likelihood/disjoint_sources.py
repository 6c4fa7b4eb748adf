"""The sources that single parameters act on, apart from all others: a batch, a few in each entry."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rime_kernels import Gradient, Sources
from rime_kernels.arrays import Beam
from rime_kernels.arrays.sources import AXES
from rime_kernels.jones_beam import JonesBeam

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DisjointSources:
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
        index, arrays = self._index(sources), dict[str, Any]()
        for name, (_, axes) in AXES.items():
            values, axis = getattr(sources, name), _axis_of_sources(axes)
            if values is None or axis is None:
                arrays[name] = values
            elif axes[0] == "batch":
                arrays[name] = np.ascontiguousarray(_chosen(values, axis, index[axes[axis]]))
            else:
                arrays[name] = values[index[axes[axis]][0]]
        if not index["profile"].size:
            arrays["profile"] = arrays["profile_kind"] = None
        if sources.template_scale is not None:
            arrays["template_scale"] = np.where(self.images, sources.template_scale, 0.0)
        return Sources.unchecked(
            **arrays,
            beam=_beam(sources.beam, self.which[0]),
            antenna_terms=sources.antenna_terms,
            polarised=sources.polarised,
        )

    def spread(self, gradient: Gradient, sources: Sources) -> Gradient:
        """Derivatives with respect to all sources, from those with respect to these: the adjoint of `of`."""
        index = self._index(sources)
        spread: dict[str, Any] = {field.name: getattr(gradient, field.name) for field in fields(gradient)}
        for name in spread.keys() & AXES.keys():
            whole, axis = getattr(sources, name), _axis_of_sources(AXES[name][1])
            if whole is not None and axis is not None:
                total, chosen = np.zeros(whole.shape), index[AXES[name][1][axis]]
                if chosen.size:
                    rows = np.arange(len(chosen))[:, None]
                    np.moveaxis(total, axis, 1)[rows, chosen] = np.moveaxis(spread[name], axis, 1)
                spread[name] = total
        if gradient.template_scale is not None:
            spread["template_scale"] = np.where(self.images, gradient.template_scale, 0.0)
        return Gradient(**spread)

    def parts(self, n: int) -> list[DisjointSources]:
        """Parts of this batch with at most n parameters each."""
        starts = range(0, len(self.members), n)
        cut = [slice(start, start + n) for start in starts]
        return [DisjointSources(self.members[some], self.which[some], self.images[some]) for some in cut]

    def _index(self, sources: Sources) -> dict[int | str, Index]:
        """Which entries each axis of `AXES` that counts sources has of these sources, (n, n_some)."""
        starts = {"source": 0, "shape": sources.n_point, "profile": sources.n_point + sources.n_gaussian}
        return {axis: self.which[:, self.which[0] >= start] - start for axis, start in starts.items()}


def _axis_of_sources(axes: tuple[int | str, ...]) -> int | None:
    """The axis that counts sources, or some of them."""
    return next((k for k, axis in enumerate(axes) if axis in ("source", "shape", "profile")), None)


def _chosen(values: NDArray[Any], axis: int, index: Index) -> NDArray[Any]:
    """Values with some entries of an axis, which differ from entry to entry of the batch."""
    rows = np.arange(len(index))[:, None]
    return np.moveaxis(np.moveaxis(values, axis, 1)[rows, index], 1, axis)


def disjoint_sources(without: Sources, changed: Sources) -> list[DisjointSources]:
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
        DisjointSources(np.array(k), np.array([np.flatnonzero(differs[i]) for i in k], np.int64), images[k])
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
