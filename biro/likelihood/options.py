"""How a likelihood computes: the options that several likelihoods can share, and what they left to biro."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, TypedDict

from biro.choices import SmearingMode
from biro.display.formatting import check_names
from rime_kernels.check import n_byte
from rime_kernels.choices import AnyPrecision, Backend, GaussianFrame, GridderName, Precision
from rime_kernels.engine.device_threads import Devices, check_devices
from rime_kernels.geometry import Form

if TYPE_CHECKING:
    from mpi4py import MPI


class EngineKeywords(TypedDict, total=False):
    """The fields of `EngineOptions` as keyword arguments of `biro.Likelihood`."""

    backend: Backend
    precision: AnyPrecision
    form: Form | Literal["auto"]
    gaussian_frame: GaussianFrame
    memory_limit: int | str | None
    image_accuracy: float
    image_engine: GridderName
    smearing: SmearingMode | Sequence[SmearingMode]
    devices: Devices | None
    comm: MPI.Intracomm | None


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How model visibilities and chi-squared are computed, for one `biro.Likelihood` or several.

    Attributes
    ----------
    backend : "auto", "cpu" or "cuda"
        "auto" takes the GPU where one works and logs what it chose and why.
    precision : "double", "single" or "auto"
        Of the sums over sources; phases are float64 always and so is chi-squared. "auto" measures, about the
        maximum of the posterior, what single would change, and takes it where that is below 0.05 of ln L
        (`biro.likelihood.precision.choose_precision`). It does so when the likelihood is made, not when
        sampling starts, because kernels, plan and digest depend on it.
    form : "auto", "factored" or "row"
        Antenna-based phases, or exact ones per row (physics: section 2). "auto" looks at how well
        each partition's uvw close, and at how far out the prior lets sources go.
    gaussian_frame : "tangent" or "uv"
        In which plane elliptical Gaussians lie (physics: section 5).
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", that data and work may take on the device, or in this process on the
        CPU; shared out over the partitions by the size of their data. What does not fit on a GPU is streamed
        from the host's memory, data that do not fit on the CPU are refused. No result depends on it. With
        several devices, or processes, it is that of each.
    image_accuracy : float
        Rms error over rms of the visibilities of the model's images, which are worked out once.
    image_engine : "auto", "idg" or "wprojection"
        What works them out: see `rime_kernels.make_gridder`.
    smearing : "auto", "on" or "off", or one of them for each partition
        Whether the model is averaged over integrations and channels as the data are (physics: section 6).
        "auto" is on where the loss exceeds the noise (`biro.observation.smearing.choose`).
    devices : "all", int or sequence of int, optional
        GPUs of one kind that share the data: all, the first so many, or those of these numbers. Each has
        blocks of whole time slots, which follow from the data alone, so that results are the same to the bit
        for any number of GPUs. Default: one GPU with all rows in one block, which differs by roundings.
    comm : mpi4py.MPI.Intracomm, optional
        Processes of MPI that share the data in the same blocks, so that results are the same to the bit for
        any number of them; `devices` are those of each. Only the first goes on: the others serve it until the
        likelihood is closed, or the first process ends, and then end. They may give None for observation and
        sky.

    Raises
    ------
    InputError
        A memory limit that is no number of bytes, or what names no devices.

    Examples
    --------
    >>> gpus = biro.EngineOptions(backend="cuda", devices="all", memory_limit="40 GB")
    >>> one, two = (biro.Likelihood(observation, sky, options=gpus) for sky in (first, second))
    """

    backend: Backend = "auto"
    precision: AnyPrecision = "double"
    form: Form | Literal["auto"] = "auto"
    gaussian_frame: GaussianFrame = "tangent"
    memory_limit: int | str | None = None
    image_accuracy: float = 1e-5
    image_engine: GridderName = "auto"
    smearing: SmearingMode | Sequence[SmearingMode] = "auto"
    devices: Devices | None = None
    comm: MPI.Intracomm | None = None

    def __post_init__(self) -> None:
        if self.memory_limit is not None:
            n_byte("memory_limit", self.memory_limit)
        if self.devices is not None:
            check_devices(self.devices)

    @property
    def chosen_precision(self) -> Precision:
        """The precision; "double" while "auto" has not chosen."""
        return "double" if self.precision == "auto" else self.precision

    def changed(self, keywords: EngineKeywords) -> EngineOptions:
        """These options with others by name."""
        check_names(keywords, [field.name for field in fields(self)], "Likelihood")
        return replace(self, **keywords)

    def memory_shares(self, sizes: Sequence[int], taken: int) -> list[int | None]:
        """Bytes for each partition, in proportion to the size of its data; None without a limit.

        Parameters
        ----------
        sizes : sequence of int
        taken : int
            Bytes of the limit that data take.
        """
        if self.memory_limit is None:
            return [None] * len(sizes)
        limit, total = n_byte("memory_limit", self.memory_limit) - taken, sum(sizes)
        return [max(1, limit * size // total) for size in sizes]


@dataclass(frozen=True)
class Choices:
    """What a likelihood chose where its options left it open, and what that means for a fit.

    Attributes
    ----------
    forms : list of str
        How phases are computed in each partition: "factored" or "row".
    precision : str
        The precision, and why.
    smearing : list of str
        What was chosen about smearing and why, a line for each partition, or one for all.
    gains : list of str
        How gains are treated, and what that leaves out; empty where gains are those of the model.
    average : list of str
        What was found about cells, a line; empty where none were asked for.
    """

    forms: list[Form]
    precision: str
    smearing: list[str]
    gains: list[str]
    average: list[str]
