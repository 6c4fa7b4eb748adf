"""The visibilities of all partitions: one `Rime` for each, with the data and images that do not change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from biro.distributed.placement import Placement, placement_of
from biro.errors import InputError
from biro.files.memory import byte_text
from biro.imaging.templates import Templates
from biro.likelihood.options import EngineOptions
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.partition_header import BYTES_AS_READ
from biro.observation.smearing import SmearingChoice, choose, modes_of
from rime_kernels import Gradient, Rime, chi2_and_gradient_many, chi2_many, device
from rime_kernels.arrays import Sources
from rime_kernels.check import n_byte
from rime_kernels.choices import Precision
from rime_kernels.tangent.grouped import GroupedInformation

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating]
_BYTES = 256 << 20
"""Bytes of model visibilities that are made at a time, where sums over them are taken on the CPU."""
COMPUTED = {"double": 24, "single": 12}
"""Bytes of a visibility and its weight as they are computed with."""
SMEARED_COPIES = 3
"""A model that is smeared has data in the order of rows, too, and of blocks of rows."""
ON_THE_WAY = {"double": 39, "single": 32}
"""Bytes of arrays for a visibility that are gone once data are as they are computed with (measured by
benchmarks/ranks_memory.py)."""
# So many draws of the prior tell where sources may be, and how bright they are.
_N_DRAW = 16


class PartitionEngines:
    """Visibilities, chi-squared and derivatives of all partitions of an observation.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
    options : EngineOptions
    left_out : float64 (n_partition,), optional
        Parts of chi-squared that no model changes, which the data of the partitions lack.

    Attributes
    ----------
    partitions : tuple of Partition
    left_out : float64 (n_partition,)
    rimes : list of Rime
        Of each partition.
    shifts : Shifts
        How images that a model moves lie about each phase centre.
    image_digest : str
        Of all pixels of the images; empty without images.
    smearing : list of SmearingChoice
        Whether the model of each partition is smeared.
    image_outlines : list of dict of str to float64 (4, 2)
        Corners of the images about each phase centre, direction cosines.
    memory : str
        What the data take on this machine, and where.

    Raises
    ------
    InputError
        Other processes have the data, and `options` name none.
    """

    def __init__(
        self,
        observation: Observation,
        model: BoundModel,
        options: EngineOptions,
        left_out: Array | None = None,
    ) -> None:
        self.partitions = observation.partitions
        self.left_out: Array = np.zeros(len(observation.partitions)) if left_out is None else left_out
        templates = Templates(
            observation,
            model,
            accuracy=options.image_accuracy,
            engine=options.image_engine,
            backend=options.backend,
            memory_limit=options.memory_limit,
        )
        self.smearing = _choices(observation, model, options, templates)
        self.image_digest, self.shifts = templates.digest(), templates.shifts
        self.image_outlines = templates.outlines()
        placement = placement_of(observation, options.comm)
        self.memory, taken = _memory_for(observation, options, self.smearing, placement)
        limits = options.memory_shares([part.vis.size for part in observation.partitions], taken)
        self.rimes = [
            Rime(
                part.rows,
                **placement.data_for_rime(part),
                template=templates.of(i, self.smearing[i].smearing),
                template_lm=templates.lm(i),
                backend=options.backend,
                precision=options.chosen_precision,
                form=options.form,
                gaussian_frame=options.gaussian_frame,
                extent=max(model.extent(i), templates.extent(i)),
                smearing=self.smearing[i].smearing if templates.needs_phases else None,
                memory_limit=limit,
                devices=options.devices,
            )
            for i, (part, limit) in enumerate(zip(observation.partitions, limits, strict=True))
        ]
        for part, rime, choice in zip(observation.partitions, self.rimes, self.smearing, strict=True):
            log.info("%s, spw %s: %s; %s", part.field, part.spw, rime.reason, choice)

    def sources(self, batch: ThetaBatch) -> list[Sources]:
        """The sources of each partition, shifts of images as its phase centre sees them."""
        sources = batch.sources()
        return self.shifts.of_all(sources) if self.shifts.change_any else sources

    def pull_back(self, batch: ThetaBatch, gradients: Sequence[Gradient]) -> Sequence[Gradient]:
        """Derivatives with respect to the sources as the model has them, from those to `sources`."""
        return self.shifts.pull_back_all(batch.sources(), gradients) if self.shifts.change_any else gradients

    def predict(self, batch: ThetaBatch) -> list[NDArray[np.complexfloating]]:
        """Model visibilities (n_batch, n_row, n_chan, n_corr) of each partition."""
        pairs = zip(self.rimes, self.sources(batch), strict=True)
        return [rime.predict(sources) for rime, sources in pairs]

    def visibilities(self, batch: ThetaBatch) -> Iterator[tuple[int, slice, Complex]]:
        """Model visibilities (n, n_row, n_chan, n_corr) of partition i and some entries of a batch at a time.

        As many entries as memory allows; those with impossible sources are left out.
        """
        for i, (rime, sources) in enumerate(zip(self.rimes, self.sources(batch), strict=True)):
            for rows, some in _possible(sources, self.partitions[i]):
                yield i, rows, rime.predict(some)

    def gradients(
        self, batch: ThetaBatch, residuals: Callable[[int, slice, Complex], Complex]
    ) -> Sequence[Gradient]:
        """Re(J^H W r) of each partition, for its sources as the model has them.

        Parameters
        ----------
        batch : ThetaBatch
            Derivatives of entries with impossible sources mean nothing.
        residuals : function
            From i, entries and visibilities, as `visibilities` has them, to r, complex of their shape, Jy.
        """
        gradients = []
        for i, (rime, sources) in enumerate(zip(self.rimes, self.sources(batch), strict=True)):
            parts = {b: self.no_gradient(i, sources.entries(b, b + 1)) for b in _impossible(sources)}
            for rows, some in _possible(sources, self.partitions[i]):
                parts[rows.start] = rime.adjoint(some, residuals(i, rows, rime.predict(some)))
            gradients.append(Gradient.joined([parts[b] for b in sorted(parts)]))
        return self.pull_back(batch, gradients)

    def no_gradient(self, i: int, sources: Sources) -> Gradient:
        """Derivatives of NaN with respect to one entry of the sources of partition i."""
        _, gradient = self.rimes[i].chi2_and_gradient(sources)
        gradient.set_nan(np.ones(1, bool))
        return gradient

    def predict_some(
        self, batch: ThetaBatch, i: int, rows: NDArray[np.int64], channels: slice
    ) -> NDArray[np.complexfloating]:
        """Model visibilities of some rows and channels of partition i, for a batch of one."""
        sources = self.sources(batch)[i]
        return np.asarray(self.rimes[i].predict_some(sources, rows, channels)[0])

    def plans(self, batch: ThetaBatch) -> list[str]:
        """How a call with a batch of this size is computed in each partition; puts the data on the device."""
        return [rime.plan(sources) for rime, sources in zip(self.rimes, self.sources(batch), strict=True)]

    def chi2(self, batch: ThetaBatch, scaled_dofs: Sequence[Array] | None = None) -> Array:
        """Chi-squared, float64 (n_batch, n_partition); of Student's t, sum t ln(1 + w |D - V|^2 / t).

        Parameters
        ----------
        batch : ThetaBatch
        scaled_dofs : sequence of float64 (n_batch,), optional
            t of each partition; see `ChiSquaredLikelihood`.
        """
        columns = chi2_many(self.rimes, self.sources(batch), scaled_dofs)
        chi2 = np.empty((len(batch.theta), len(columns)))
        for i, column in enumerate(columns):
            np.add(column, self.left_out[i], out=chi2[:, i])
        return chi2

    def information(self, i: int, sources: Sources, change: Gradient) -> Array:
        """Re(J^H W J) between changes of the sources of partition i, float64 (n_change, n_change)."""
        return self.rimes[i].information(sources, change)

    def segment_information(
        self, i: int, sources: Sources, change: Gradient, segments: NDArray[np.int64], n_inner: int
    ) -> GroupedInformation:
        """`information` in blocks, of segments (n_time,) to which the first n_inner changes belong."""
        rime = self.rimes[i]
        return rime.grouped_information(sources, change, segments[rime.rows.time_index], n_inner)

    def information_product(self, i: int, sources: Sources, change: Gradient) -> Gradient:
        """Re(J^H W J v) for one change v of the sources of partition i."""
        return self.rimes[i].information_product(sources, change)

    def adjoint(
        self, batch: ThetaBatch, residuals: Sequence[NDArray[np.complexfloating]]
    ) -> Sequence[Gradient]:
        """Re(J^H W r) of each partition, for its sources as the model has them.

        Parameters
        ----------
        batch : ThetaBatch
        residuals : sequence of complex (n_batch, n_row, n_chan, n_corr), Jy
            r of each partition.
        """
        each = zip(self.rimes, self.sources(batch), residuals, strict=True)
        return self.pull_back(batch, [rime.adjoint(sources, residual) for rime, sources, residual in each])

    def chi2_and_gradient(
        self, batch: ThetaBatch, scaled_dofs: Sequence[Array] | None
    ) -> tuple[Array, Sequence[Gradient]]:
        """`chi2`, and its derivatives with respect to the sources of each partition as the model has them."""
        both = chi2_and_gradient_many(self.rimes, self.sources(batch), scaled_dofs)
        gradients = self.pull_back(batch, [gradient for _, gradient in both])
        return np.stack([chi2 for chi2, _ in both], axis=1) + self.left_out, gradients


def _impossible(sources: Sources) -> list[int]:
    """Entries of a batch that have no visibilities."""
    found: list[int] = np.flatnonzero(sources.invalid()).tolist()
    return found


def _possible(sources: Sources, part: Partition) -> Iterator[tuple[slice, Sources]]:
    """Entries of a batch that have visibilities, so many at a time as memory allows."""
    step, invalid = max(1, _BYTES // (16 * max(1, part.vis.size))), _impossible(sources)
    after = [b + 1 for b in invalid]
    ends = sorted({*invalid, *after, *range(0, sources.n_batch, step), sources.n_batch})
    for begin, end in pairwise(ends):
        if begin not in invalid:
            yield slice(begin, end), sources.entries(begin, end)


@dataclass(frozen=True)
class _Memory:
    """What each process is to have in memory, bytes.

    Attributes
    ----------
    read : list of float
        Data as they are read, which are there already.
    kept : list of float
        Data as they are computed with.
    work : list of float
        Arrays that are gone once data are as they are computed with: of a block at a time where data are
        shared, else of all.
    """

    read: list[float]
    kept: list[float]
    work: list[float]

    @classmethod
    def of(
        cls,
        observation: Observation,
        precision: Precision,
        smearing: Sequence[SmearingChoice],
        placement: Placement,
    ) -> _Memory:
        """Memory that all partitions need."""
        parts = observation.partitions
        in_row = [part.n_chan * part.n_corr for part in parts]
        copies = [1 if choice.smearing is None else SMEARED_COPIES for choice in smearing]
        read = placement.totals([BYTES_AS_READ * n for n in in_row])
        if not observation.is_distributed:
            read[0] = float(sum(part.vis.nbytes + part.weight.nbytes for part in parts))
        kept = placement.totals([COMPUTED[precision] * n * k for n, k in zip(in_row, copies, strict=True)])
        work = [ON_THE_WAY[precision] * n for n in in_row]
        return cls(read, kept, placement.largest(work) if placement.is_shared else placement.totals(work))


def _memory_for(
    observation: Observation,
    options: EngineOptions,
    smearing: Sequence[SmearingChoice],
    placement: Placement,
) -> tuple[str, int]:
    """What data take as they are computed with on this machine, in words; and bytes of a memory limit.

    What has no room in memory, on a disk, or in a memory limit of the CPU, is refused. The
    bytes are those that data take of the limit.
    """
    memory = _Memory.of(observation, options.chosen_precision, smearing, placement)
    folder = observation.cache_folder
    text = f"{byte_text(placement.here(memory.kept))} of prepared data, in "
    needed = memory.work
    if folder is None:
        needed = [kept + work for kept, work in zip(memory.kept, memory.work, strict=True)]
    placement.check_memory(needed, "to compute with these data", _remedy)
    if folder is not None:
        remedy = 'give another folder, average the data, or use precision="single"'
        placement.check_disk(folder, memory.kept, "prepared data", remedy)
        return f"{text}files of {folder}", 0
    if options.memory_limit is None or device.resolve(options.backend)[0] != "cpu":
        return f"{text}memory", 0
    limit = n_byte("memory_limit", options.memory_limit)
    taken = [read + more for read, more in zip(memory.read, needed, strict=True)]
    if max(taken) > limit:
        times = int(-(-max(taken) // limit))
        raise InputError(
            f"these data need {byte_text(max(taken))} of memory in one process, but memory_limit allows "
            f"{byte_text(limit)}; {_remedy(times, times * len(taken))}"
        )
    return f"{text}memory", int(max(taken))


def _remedy(times: int, n_machine: int) -> str:
    return (
        f"average {max(2, times)} times more (average_time=, average_channels=), keep the data in files "
        f"(cache=), share them among MPI processes on {max(2, n_machine)} machines of this size, or use "
        'precision="single"'
    )


def _choices(
    observation: Observation, model: BoundModel, options: EngineOptions, templates: Templates
) -> list[SmearingChoice]:
    """Whether the model of each partition is smeared, by what the prior says of its sources."""
    modes = modes_of(options.smearing, len(observation.partitions))
    if set(modes) == {"off"}:
        return [SmearingChoice(None, "as asked") for _ in modes]
    draws = np.random.default_rng(0).random((_N_DRAW, model.n_param))
    batch = model.at(model.prior_transform(draws))
    return [
        choose(part, sources, modes[i], images=templates.rings(i))
        for i, (part, sources) in enumerate(zip(observation.partitions, batch.sources(), strict=True))
    ]
