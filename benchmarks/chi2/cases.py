"""What is measured: the sizes of each problem, and its arrays."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from rime_kernels import Rows, Sources, stokes_to_corr
from rime_kernels.geometry import Form

LINEAR = ["XX", "XY", "YX", "YY"]
EXTENT = 0.02  # largest |l|, |m|
# Source-visibilities of one call on a CPU, where the number of times allows: some hundredths of a second.
_CPU_WORK = 2e8
_MANY_CHANNELS = (1, 4, 20, 1000)


@dataclass(frozen=True)
class Case:
    """Sizes of one problem.

    What is measured beside `Rime.chi2`: `peers`, other programs; `whole`, the call through
    `Likelihood.log_likelihood`; `extras`, the case streamed and under emcee. `single_only`: not in
    double precision, since millions of rows take long to prepare.
    """

    name: str
    n_antenna: int
    n_time: int
    n_chan: int
    n_point: int
    n_gaussian: int = 0
    n_batch: int = 1
    polarised: bool = True
    form: Form = "factored"
    peers: bool = False
    whole: bool = False
    extras: bool = False
    single_only: bool = False

    @property
    def n_source(self) -> int:
        return self.n_point + self.n_gaussian

    @property
    def n_row(self) -> int:
        return self.n_time * self.n_antenna * (self.n_antenna - 1) // 2

    @property
    def n_sample(self) -> int:
        """Rows times channels."""
        return self.n_row * self.n_chan

    @property
    def n_source_visibility(self) -> float:
        return float(self.n_sample) * self.n_source * self.n_batch

    @property
    def fma(self) -> int:
        """Fused multiply-adds of one source and visibility: 4 of the product of the antenna terms, and 8
        more to add it to four Stokes sums; with I alone its brightness goes into the antenna terms."""
        return 12 if self.polarised else 4

    @property
    def n_corr(self) -> int:
        return 4 if self.polarised else 1


def _eht(n_batch: int) -> Case:
    name = f"EHT, batch {n_batch}"
    return Case(name, 7, 114, 1, 3, n_batch=n_batch, polarised=False, whole=True)


# Cases of one geometry follow each other: rows, data and `Rime` are made once for them.
FULL = [
    *(_eht(n) for n in (1, 16, 256, 4096)),
    Case("64 antennas, 50 + 50", 64, 100, 64, 50, 50, peers=True),
    Case("64 antennas, 100 points", 64, 100, 64, 100, peers=True, extras=True),
    Case("64 antennas, 100 points, row form", 64, 100, 64, 100, form="row", peers=True),
    Case("64 antennas, 1 point", 64, 100, 64, 1, peers=True),
    Case("64 antennas, 100 points, Stokes I", 64, 100, 64, 100, polarised=False, peers=True),
    Case("64 antennas, 1000 points", 64, 20, 64, 1000, peers=True),
    *(
        Case(
            f"64 antennas, 100 points, {n} channel{'s' * (n > 1)}",
            64,
            max(4, 6400 // n),
            n,
            100,
            single_only=True,
        )
        for n in _MANY_CHANNELS
    ),
    Case("128 antennas, 50 + 50", 128, 20, 64, 50, 50, peers=True),
    Case("192 antennas, 50 + 50", 192, 20, 64, 50, 50, peers=True),
    Case("7 antennas, 50 + 50", 7, 100, 64, 50, 50, peers=True),
    Case("7 antennas, 100 points", 7, 100, 64, 100),
    Case("14 antennas, 50 + 50", 14, 100, 64, 50, 50, peers=True),
    Case("27 antennas, 50 + 50", 27, 100, 64, 50, 50, peers=True),
    Case("27 antennas, 100 points", 27, 100, 64, 100),
]
QUICK = [
    Case("7 antennas, 10 + 10", 7, 20, 16, 10, 10, peers=True),
    Case("16 antennas, 20 points", 16, 10, 16, 20, peers=True, extras=True),
    Case("16 antennas, 20 points, row form", 16, 10, 16, 20, form="row", peers=True),
    Case("16 antennas, 20 points, Stokes I", 16, 10, 16, 20, polarised=False, peers=True),
    *(_eht(n) for n in (1, 16)),
]
TINY = [
    Case("3 antennas, 1 + 1", 3, 2, 2, 1, 1, extras=True),
    Case("3 antennas, 2 points, row form", 3, 2, 2, 2, form="row"),
    Case("3 antennas, 2 points, Stokes I", 3, 2, 1, 2, n_batch=2, polarised=False, whole=True),
]
STREAMED, SAMPLED = "streamed", "emcee"  # added to the name of the case


def cases(device: str, *, quick: bool, simulated: bool = False) -> list[Case]:
    """The cases of a run: all, one small case of each kind, or what a simulated GPU can do."""
    if simulated:
        return TINY
    if quick:
        return QUICK
    return [for_cpu(case) for case in FULL] if device == "cpu" else FULL


def for_cpu(case: Case) -> Case:
    """Fewer times, where a call would take long; never fewer than 4."""
    if case.n_batch > 1 or case.n_source == 1:
        return case
    few = fewer_times(case, _CPU_WORK)
    return replace(case, n_time=max(few.n_time, min(4, case.n_time)))


def fewer_times(case: Case, most: float) -> Case:
    """The case with as many times as `most` source-visibilities hold: rates do not change."""
    per_time = case.n_source_visibility / case.n_time
    return replace(case, n_time=int(np.clip(most / per_time, 1, case.n_time)))


@dataclass(frozen=True, eq=False)
class Field:
    """All baselines at all times, with data: what stays the same for the cases of one geometry."""

    rows: Rows
    antenna_uvw: np.ndarray  # (n_time, n_antenna, 3), m
    vis: np.ndarray  # complex64 (n_row, n_chan, n_corr)
    weight: np.ndarray  # float32

    @property
    def n_byte(self) -> int:
        """Data and weights in single precision."""
        return int(self.vis.nbytes + self.weight.nbytes)


def field(case: Case) -> Field:
    """The field of a case; that of the last geometry is kept."""
    return _field(case.n_antenna, case.n_time, case.n_chan, case.polarised)


@functools.lru_cache(maxsize=1)
def _field(n_antenna: int, n_time: int, n_chan: int, polarised: bool) -> Field:
    rng = np.random.default_rng(1)
    first, second = np.triu_indices(n_antenna, 1)
    position = rng.normal(scale=1000.0, size=(n_time, n_antenna, 3))
    uvw = (position[:, first] - position[:, second]).reshape(-1, 3)
    antennas = np.tile(first, n_time), np.tile(second, n_time)
    time_index = np.repeat(np.arange(n_time), first.size)
    matrix = stokes_to_corr(LINEAR if polarised else ["I"])
    freq = np.linspace(1.0e9, 1.5e9, n_chan)
    rows = Rows(uvw, *antennas, time_index, freq, matrix, n_antenna, n_time)
    # Noise that repeats from time to time: drawing gigabytes takes longer than everything else.
    one_time = rng.standard_normal((first.size, n_chan, len(matrix), 2), np.float32)
    shape = n_time, *one_time.shape
    vis = np.broadcast_to(one_time, shape).reshape(-1, *one_time.shape[1:]).view(np.complex64)[..., 0]
    return Field(rows, position, vis, np.ones(vis.shape, np.float32))


def sources(case: Case) -> Sources:
    """Random sources, the same for each entry of the batch but for their places and fluxes."""
    rng = np.random.default_rng(2)
    n_batch, n_source, n_gaussian = case.n_batch, case.n_source, case.n_gaussian
    stokes = rng.normal(size=(n_batch, 1, n_source, 4)) * ([1, 1, 1, 1] if case.polarised else [1, 0, 0, 0])
    index = np.repeat(rng.normal(scale=0.7, size=(n_batch, n_source, 1, 1)), 4, axis=2)
    axes = np.sort(rng.uniform(1e-5, 1e-4, (n_batch, n_gaussian, 2)))[..., ::-1]
    angle = rng.uniform(0.0, np.pi, (n_batch, n_gaussian, 1))
    lm = rng.uniform(-EXTENT, EXTENT, (n_batch, n_source, 2))
    ref_freq, log_spectrum = np.full(n_source, 1.4e9), np.ones(n_source)
    return Sources(lm, stokes, ref_freq, index, log_spectrum, np.concatenate([axes, angle], axis=2))


def first_times(whole: Field, n_time: int) -> Field:
    """The first times of a field."""
    rows = whole.rows
    n = n_time * rows.n_row // rows.n_time
    columns = rows.uvw[:n], rows.antenna1[:n], rows.antenna2[:n], rows.time_index[:n]
    part = Rows(*columns, rows.chan_freq, rows.stokes_to_corr, rows.n_antenna, n_time)
    return Field(part, whole.antenna_uvw[:n_time], whole.vis[:n], whole.weight[:n])
