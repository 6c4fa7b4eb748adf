"""The visibilities of all partitions: one `Rime` for each, with the data and images that do not change."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.files.memory import byte_text, check_memory, free_memory
from biro.images.templates import Templates
from biro.models import BoundModel
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation
from biro.ranks.alone import ranks_of
from biro.ranks.ranks import Ranks
from biro.smearing import Choice, Mode, choose, modes_of
from rime_kernels import Gradient, Rime, chi2_and_gradient_together, chi2_together
from rime_kernels.arrays import Sources
from rime_kernels.check import n_byte
from rime_kernels.device import Backend
from rime_kernels.engine.device_threads import Devices, check_devices
from rime_kernels.geometry import Form, Precision
from rime_kernels.gridder_choice import GridderName
from rime_kernels.physics.envelope import GaussianFrame
from rime_kernels.tangent.grouped import GroupedInformation

if TYPE_CHECKING:
    from mpi4py import MPI

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
COMPUTED = {"double": 24, "single": 12}
"""Bytes of a visibility and its weight as they are computed with."""
SMEARED_COPIES = 3
"""A model that is smeared has data in the order of rows, too, and of blocks of rows."""
ON_THE_WAY = {"double": 39, "single": 32}
"""Bytes of arrays for a visibility that are gone once data are as they are computed with (measured by
benchmarks/ranks_memory.py)."""
# So many draws of the prior tell where sources may be, and how bright they are.
_N_DRAW = 16


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How visibilities are computed; see `biro.Likelihood`.

    Raises
    ------
    InputError
        A memory limit that is no number of bytes, or what names no devices.
    """

    backend: Backend
    precision: Precision
    form: Form | Literal["auto"]
    gaussian_frame: GaussianFrame
    memory_limit: int | str | None
    image_accuracy: float
    image_engine: GridderName
    smearing: Mode | Sequence[Mode] = "auto"
    devices: Devices | None = None
    comm: MPI.Intracomm | None = None

    def __post_init__(self) -> None:
        self.memory_shares([1])
        if self.devices is not None:
            check_devices(self.devices)

    def keywords(self) -> dict[str, Any]:
        """The same as arguments of a likelihood, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def memory_shares(self, sizes: Sequence[int]) -> list[int | None]:
        """Bytes for each partition, in proportion to the size of its data; None without a limit."""
        if self.memory_limit is None:
            return [None] * len(sizes)
        limit, total = n_byte("memory_limit", self.memory_limit), sum(sizes)
        return [max(1, limit * size // total) for size in sizes]


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
    smearing : list of Choice
        Whether the model of each partition is smeared.
    image_outlines : list of dict of str to float64 (4, 2)
        Corners of the images about each phase centre, direction cosines.
    memory : str
        What the data take on this machine, and where.

    Raises
    ------
    InputError
        Ranks hold the data, and `options` name none.
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
        ranks = ranks_of(observation, options.comm)
        self.memory = _memory_for(observation, options, self.smearing, ranks)
        limits = options.memory_shares([part.vis.size for part in observation.partitions])
        self.rimes = [
            Rime(
                part.rows,
                vis=part.vis if part.held is None else None,
                weight=part.weight if part.held is None else None,
                held=part.held,
                template=templates.of(i, self.smearing[i].smearing),
                template_lm=templates.lm(i),
                backend=options.backend,
                precision=options.precision,
                form=options.form,
                gaussian_frame=options.gaussian_frame,
                extent=max(model.extent(i), templates.extent(i)),
                smearing=self.smearing[i].smearing if templates.needs_phases else None,
                memory_limit=limit,
                devices=options.devices,
                ranks=ranks,
                folder=None if part.held is None else part.held.folder,
            )
            for i, (part, limit) in enumerate(zip(observation.partitions, limits, strict=True))
        ]
        for part, rime, choice in zip(observation.partitions, self.rimes, self.smearing, strict=True):
            log.info("%s, spw %s: %s; %s", part.field, part.spw, rime.reason, choice)

    def sources(self, batch: ThetaBatch) -> Iterator[Sources]:
        """The sources of each partition, shifts of images as its phase centre sees them."""
        return self.shifts.of_all(batch.sources())

    def predict(self, batch: ThetaBatch) -> list[NDArray[np.complexfloating]]:
        """Model visibilities (n_batch, n_row, n_chan, n_corr) of each partition."""
        pairs = zip(self.rimes, self.sources(batch), strict=True)
        return [rime.predict(sources) for rime, sources in pairs]

    def predict_some(
        self, batch: ThetaBatch, i: int, rows: NDArray[np.int64], channels: slice
    ) -> NDArray[np.complexfloating]:
        """Those of some rows and channels of partition i, for a batch of one, without its axis."""
        sources = list(self.sources(batch))[i]
        return np.asarray(self.rimes[i].predict_some(sources, rows, channels)[0])

    def plans(self, batch: ThetaBatch) -> list[str]:
        """How a call with a batch of this size is computed in each partition; puts the data on the device."""
        return [rime.plan(sources) for rime, sources in zip(self.rimes, self.sources(batch), strict=True)]

    def chi2(self, batch: ThetaBatch, scaled_dofs: Sequence[Array | None] | None = None) -> Array:
        """Chi-squared, float64 (n_batch, n_partition); of Student's t, sum t ln(1 + w |D - V|^2 / t).

        Parameters
        ----------
        batch : ThetaBatch
        scaled_dofs : sequence of float64 (n_batch,) or None, optional
            t of each partition; see `NoiseLaw.scaled_dofs`.
        """
        # Sources of the next partition are made while the device works on the one before.
        columns = chi2_together(self.rimes, self.sources(batch), scaled_dofs)
        chi2 = np.empty((len(batch), len(columns)))
        for i, column in enumerate(columns):
            chi2[:, i] = column + self.left_out[i]
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

    def adjoint(self, batch: ThetaBatch, residuals: Sequence[NDArray[np.complexfloating]]) -> list[Gradient]:
        """Re(J^H W r) of each partition, for its sources as the model has them.

        Parameters
        ----------
        batch : ThetaBatch
        residuals : sequence of complex (n_batch, n_row, n_chan, n_corr), Jy
            r of each partition.
        """
        of_model = list(batch.sources())
        return [
            self.shifts.pull_back(i, of_model[i], self.rimes[i].adjoint(sources, residuals[i]))
            for i, sources in enumerate(self.shifts.of_all(iter(of_model)))
        ]

    def chi2_and_gradient(
        self, batch: ThetaBatch, scaled_dofs: Sequence[Array | None]
    ) -> tuple[Array, list[Gradient]]:
        """`chi2`, and its derivatives with respect to the sources of each partition as the model has them."""
        sources = list(batch.sources())
        both = chi2_and_gradient_together(self.rimes, self.shifts.of_all(iter(sources)), scaled_dofs)
        gradients = [self.shifts.pull_back(i, sources[i], gradient) for i, (_, gradient) in enumerate(both)]
        return np.stack([chi2 for chi2, _ in both], axis=1) + self.left_out, gradients


def _memory_for(
    observation: Observation, options: EngineOptions, smearing: Sequence[Choice], ranks: Ranks | None
) -> str:
    """What data take as they are computed with on this machine, in words; what has no room is refused."""
    of_each = COMPUTED[options.precision]
    size = sum(
        part.vis.size * of_each * (SMEARED_COPIES if choice.smearing is not None else 1)
        for part, choice in zip(observation.partitions, smearing, strict=True)
    )
    here = size * (1.0 if ranks is None else ranks.share_of_host)
    folder = observation.cache_folder
    if folder is not None:
        free = shutil.disk_usage(folder).free
        if here > free:
            raise InputError(
                f"{folder}: data as they are computed with take {byte_text(here)}, {byte_text(free)} are "
                'free: give another folder, average, or precision="single"'
            )
        return f"{byte_text(here)} of data as they are computed with, in files of {folder}"
    # Arrays on the way, where rows are in no shards.
    needed = (
        here
        if observation.is_held
        else here + sum(part.vis.size * ON_THE_WAY[options.precision] for part in observation.partitions)
    )
    times = -(-needed // max(1, free_memory()))
    check_memory(
        needed,
        "to compute with these data",
        f"average {max(2, times):.0f} times more (average_time=, average_channels=), keep data in files "
        f"(cache=), share them among ranks of MPI on {max(2, times):.0f} such machines, or take "
        'precision="single"',
    )
    return f"{byte_text(here)} of data as they are computed with, in memory"


def _choices(
    observation: Observation, model: BoundModel, options: EngineOptions, templates: Templates
) -> list[Choice]:
    """Whether the model of each partition is smeared, by what the prior says of its sources."""
    modes = modes_of(options.smearing, len(observation.partitions))
    if set(modes) == {"off"}:
        return [Choice(None, "as asked") for _ in modes]
    draws = np.random.default_rng(0).random((_N_DRAW, model.n_param))
    batch = model.at(model.prior_transform(draws))
    return [
        choose(part, sources, modes[i], images=templates.rings(i))
        for i, (part, sources) in enumerate(zip(observation.partitions, batch.sources(), strict=True))
    ]
