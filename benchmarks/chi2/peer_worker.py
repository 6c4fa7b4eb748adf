"""Other programs on the same workload: reads requests, one JSON object a line, and answers alike.

    python benchmarks/peer_worker.py

    {"peer": "africanus", "work": "work.npz", "seconds": 2.0, "threads": 2}
    {"peer": "africanus", "variant": "fused", "rate": 5.1e7, ...}   or   {"peer": ..., "skipped": "why"}

Needs numpy alone, and for each peer that peer: it may run under another interpreter than biro.
The rate is source-visibilities per second: times x baselines (p < q) x channels x sources / time.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import numpy as np

SPEED_OF_LIGHT = 299792458.0
Call = Callable[[], object]
Line = dict[str, Any]  # an object of JSON: a request, or an answer

Variant = tuple[Call, float]  # a call, and how many source-visibilities it does


class Work:
    """The arrays of a work file (`_arrays` in peers.py) as attributes."""

    uvw: np.ndarray
    antenna1: np.ndarray
    antenna2: np.ndarray
    time_index: np.ndarray
    chan_freq: np.ndarray
    matrix: np.ndarray
    antenna_uvw: np.ndarray
    lm: np.ndarray
    stokes: np.ndarray
    alpha: np.ndarray
    ref_freq: np.ndarray
    shape: np.ndarray
    single: np.ndarray

    def __init__(self, path: str, threads: int) -> None:
        with np.load(path) as file:
            self.__dict__.update({name: file[name] for name in file.files})
        self.threads = threads
        self.real = np.float32 if self.single else np.float64
        self.complex = np.complex64 if self.single else np.complex128
        self.n_row, self.n_chan, self.n_source = len(self.uvw), len(self.chan_freq), len(self.lm)
        self.n_point = self.n_source - len(self.shape)
        self.n_time, self.n_antenna = self.antenna_uvw.shape[:2]

    def cast(self, name: str) -> np.ndarray:
        return getattr(self, name).astype(self.real)

    def correlations(self) -> np.ndarray:
        """Brightness as correlations, complex (n_source, n_chan, n_corr)."""
        spectrum = (self.chan_freq / self.ref_freq[:, None]) ** self.alpha[:, None]
        return spectrum[..., None] * (self.stokes @ self.matrix.T)[:, None]


def direct_sum(work: Work, rows: slice, real: type, frame: str = "tangent") -> np.ndarray:
    """Sines and cosines of all sources for some rows and one channel at a time, then a matrix product."""
    l, m = work.lm.T
    n_minus_1 = np.sqrt(1.0 - l * l - m * m) - 1.0
    metres = (work.uvw[rows] @ np.stack([l, m, n_minus_1])).astype(real)
    dtype = np.result_type(real, np.complex64)
    bright = np.ascontiguousarray(work.correlations().transpose(1, 0, 2), dtype)  # BLAS takes no strides
    out = np.empty((metres.shape[0], work.n_chan, bright.shape[2]), dtype)
    kernel = np.empty(metres.shape, dtype)
    square = gaussian_squares(work, rows, n_minus_1, frame).astype(real)
    for c, freq in enumerate(work.chan_freq):
        x = metres * real(2.0 * np.pi * freq / SPEED_OF_LIGHT)
        np.cos(x, out=kernel.real)
        np.sin(x, out=kernel.imag)
        kernel[:, work.n_point :] *= np.exp(-square * real((freq / SPEED_OF_LIGHT) ** 2))
        out[:, c] = kernel @ bright[c]
    return out


def gaussian_squares(work: Work, rows: slice, n_minus_1: np.ndarray, frame: str) -> np.ndarray:
    """Exponent of each Gaussian's envelope without (nu/c)^2, (n_row, n_gaussian), m^2."""
    l, m = work.lm[work.n_point :].T * (frame == "tangent")
    n = 1.0 + n_minus_1[work.n_point :]
    emaj, emin, pa = work.shape.T
    u, v, w = (x[:, None] for x in work.uvw[rows].T)
    x, y = u - w * l / n, v - w * m / n
    a, b = x * np.sin(pa) + y * np.cos(pa), x * np.cos(pa) - y * np.sin(pa)
    return np.pi**2 / (4.0 * np.log(2.0)) * ((emaj * a) ** 2 + (emin * b) ** 2)


def threaded(work: Work, one: Callable[[slice], np.ndarray], n_row: int) -> Variant:
    """A call that does all rows, some at a time on each thread."""
    pool = ThreadPoolExecutor(work.threads)
    pieces = [slice(i, min(i + n_row, work.n_row)) for i in range(0, work.n_row, n_row)]
    size = float(work.n_row) * work.n_chan * work.n_source
    return lambda: np.concatenate(list(pool.map(one, pieces))), size


def numpy_variants(work: Work) -> dict[str, Variant]:
    name = "sines and cosines, then matrix product"
    return {name: threaded(work, lambda rows: direct_sum(work, rows, work.real), 2048)}


def africanus_variants(work: Work) -> dict[str, Variant]:
    each = min(2048, -(-work.n_row // work.threads))
    if len(work.matrix) == 1:
        return {"wsclean_predict": threaded(work, africanus_wsclean(work), 512)}
    functions, fused = africanus_functions(work), africanus_fused(work)
    return {"functions": threaded(work, functions, 128), "fused": threaded(work, fused, each)}


def africanus_wsclean(work: Work) -> Callable[[slice], np.ndarray]:
    """Stokes I alone, points and Gaussians."""
    from africanus.rime import wsclean_predict

    kinds = np.array(["POINT"] * work.n_point + ["GAUSSIAN"] * len(work.shape))
    shape = np.zeros((work.n_source, 3), work.real)
    shape[work.n_point :] = work.shape
    lm, uvw, freq, ref_freq = (work.cast(name) for name in ("lm", "uvw", "chan_freq", "ref_freq"))
    flux, alpha = work.cast("stokes")[:, 0].copy(), work.cast("alpha")[:, None]
    log_spectrum = np.ones(work.n_source, bool)
    sky = lm, kinds, flux, alpha, log_spectrum, ref_freq, shape, freq
    return lambda rows: wsclean_predict(uvw[rows], *sky)


def africanus_functions(work: Work, *, with_matrices: bool = False) -> Callable[[slice], np.ndarray]:
    """Phase, envelope, spectrum, correlations and sum, one function after the other."""
    from africanus.model.coherency import convert
    from africanus.model.shape import gaussian
    from africanus.model.spectral import spectral_model
    from africanus.rime import phase_delay, predict_vis

    lm, uvw, freq, shape = (work.cast(name) for name in ("lm", "uvw", "chan_freq", "shape"))
    stokes, ref_freq = work.cast("stokes"), work.cast("ref_freq")
    alpha = np.repeat(work.cast("alpha")[:, None, None], 4, 2)
    more: Line = {}
    if with_matrices:
        sizes = work.n_source, int(work.time_index.max()) + 1, work.n_antenna, work.n_chan
        ones = np.tile(np.eye(2, dtype=work.complex), (*sizes, 1, 1))
        more = {"dde1_jones": ones, "dde2_jones": ones}

    def run(rows: slice) -> np.ndarray:
        phase = phase_delay(lm, uvw[rows], freq, convention="casa")
        if len(shape):
            phase[work.n_point :] *= gaussian(uvw[rows], freq, shape)
        spectrum = spectral_model(stokes, alpha, ref_freq, freq, base="std")
        bright = convert(spectrum, list("IQUV"), [["XX", "XY"], ["YX", "YY"]]).astype(work.complex)
        terms = phase[:, :, :, None, None] * bright[:, None]
        index = work.time_index[rows], work.antenna1[rows], work.antenna2[rows]
        return predict_vis(*index, source_coh=terms, **more).reshape(-1, work.n_chan, 4)

    return run


def africanus_dde_variants(work: Work) -> dict[str, Variant]:
    """predict_vis with a 2x2 matrix for each source, time, antenna and channel, given as a table.

    The matrices are 1: no value changes the time, and the sum can be checked. Sampling a beam is not timed.
    """
    functions = africanus_functions(work, with_matrices=True)
    return {"predict_vis with dde_jones": threaded(work, functions, 128)}


def africanus_fused(work: Work) -> Callable[[slice], np.ndarray]:
    """One compiled function of all terms; points and Gaussians are two of them."""
    from africanus.experimental.rime.fused.core import rime
    from africanus.experimental.rime.fused.specification import RimeSpecification

    signature = ": [I, Q, U, V] -> [XX, XY, YX, YY]"
    with_shape = RimeSpecification(f"(Cpq, Kpq, Bpq){signature}", terms={"C": "Gaussian"})
    lm, stokes, ref_freq = work.cast("lm"), work.cast("stokes"), work.cast("ref_freq")
    alpha, uvw, shape = (
        np.repeat(work.cast("alpha")[:, None, None], 4, 2),
        work.cast("uvw"),
        work.cast("shape"),
    )

    def part(rows: slice, which: slice, spec: object, **more: np.ndarray) -> np.ndarray:
        n_row = work.time_index[rows].size
        data = {"time": work.time_index[rows].astype(float), "uvw": uvw[rows], "lm": lm[which]}
        data |= {name: getattr(work, name)[rows] for name in ("antenna1", "antenna2")}
        data |= {name: np.zeros(n_row, np.int32) for name in ("feed1", "feed2")}
        data |= {"antenna_position": np.zeros((work.n_antenna, 3)), "phase_dir": np.zeros(2, work.real)}
        data |= {
            "radec": lm[which],
            "stokes": stokes[which],
            "spi": alpha[which],
            "ref_freq": ref_freq[which],
        }
        # Its Gaussians do not compile for float32 frequencies.
        freq = work.chan_freq if more else work.cast("chan_freq")
        return rime(spec, {**data, "chan_freq": freq, **more}, convention="casa", spi_base="standard")

    def run(rows: slice) -> np.ndarray:
        n = work.n_point
        out = part(rows, slice(0, n), f"(Kpq, Bpq){signature}")
        if len(shape):
            out = out + part(rows, slice(n, None), with_shape, gauss_shape=shape)
        return out.reshape(-1, work.n_chan, 4)

    return run


def matvis_variants(work: Work, gpu: bool = False) -> dict[str, Variant]:
    """matvis: unpolarised points; all pairs of antennas, of which p < q are counted here."""
    if len(work.shape):
        raise NotImplementedError("matvis has point sources alone")
    import matvis
    from astropy import units
    from astropy.coordinates import EarthLocation
    from astropy.time import Time
    from pyuvdata.analytic_beam import AiryBeam

    if gpu and not matvis.HAVE_GPU:
        raise ImportError("matvis has no GPU here (it needs cupy)")
    logging.disable(logging.WARNING)
    place = EarthLocation.from_geodetic(21.44 * units.deg, -30.71 * units.deg, 1000 * units.m)
    start = Time("2020-09-22T21:00:00", scale="utc")
    sidereal = start.sidereal_time("apparent", longitude=place.lon).rad
    n_chan, polarised = min(work.n_chan, 4), len(work.matrix) == 4
    options: Line = {
        "ants": dict(enumerate(work.antenna_uvw[0])),
        "fluxes": np.repeat(np.abs(work.stokes[:, :1]), n_chan, axis=1),
        "ra": sidereal + work.lm[:, 0],
        "dec": np.deg2rad(-30.71) + work.lm[:, 1],
        "freqs": work.chan_freq[:n_chan],
        "times": start + np.arange(work.n_time) * 10 * units.s,
        "telescope_loc": place,
        # It always has a beam; of the analytic ones this is the fastest.
        "beams": [AiryBeam(diameter=13.5)],
        "beam_idx": np.zeros(work.n_antenna, int),
        "polarized": polarised,
        "precision": 1 if work.single else 2,
        "coord_method": "CoordinateRotationERFA",
        "use_gpu": gpu,
    }
    name = "I sky, 4 correlations" if polarised else "I sky, 1 correlation"
    size = float(work.n_row) * n_chan * work.n_source
    return {f"{name}, {n_chan} channels": (lambda: matvis.simulate_vis(**options), size)}


# What each peer runs, and the packages whose versions matter.
PEERS: dict[str, tuple[Callable[[Work], dict[str, Variant]], tuple[str, ...]]] = {
    "numpy": (numpy_variants, ("numpy",)),
    "africanus": (africanus_variants, ("codex-africanus", "numba")),
    "africanus_dde": (africanus_dde_variants, ("codex-africanus", "numba")),
    "matvis": (matvis_variants, ("matvis",)),
    "matvis_cuda": (lambda work: matvis_variants(work, gpu=True), ("matvis", "cupy-cuda12x", "cupy-cuda13x")),
}


def timed(call: Call, seconds: float) -> list[float]:
    """Seconds of each call: three of them, or more where there is time for more."""
    found: list[float] = []
    while len(found) < 3 or (sum(found) < seconds and len(found) < 20):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return found


def check(work: Work, found: object, frame: str) -> float | None:
    """Largest difference from the direct sum in float64 over a few rows, relative to the largest value."""
    if not isinstance(found, np.ndarray) or found.shape[:2] != (work.n_row, work.n_chan):
        return None
    rows = slice(max(0, work.n_row - 8), work.n_row)
    expected = direct_sum(work, rows, np.float64, frame)
    return float(np.abs(found[rows] - expected).max() / np.abs(expected).max())


def versions(names: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except Exception:  # one of several packages that bring the same module
            continue
    return found


def answer(peer: str, path: str, seconds: float, threads: int) -> Line:
    """The fastest variant of one peer."""
    work = Work(path, threads)
    variants, packages = PEERS[peer]
    frame = "uv" if peer.startswith("africanus") else "tangent"
    best: Line = {}
    failed: Exception | None = None
    for name, (call, size) in variants(work).items():
        try:
            found, times = call(), timed(call, seconds)
        except Exception as error:  # another variant may do it
            failed = error
            continue
        median = statistics.median(times)
        if size / median > best.get("rate", 0.0):
            best = {"variant": name, "rate": size / median, "n_time": work.n_time, "n": len(times)}
            best |= {"median_ms": 1e3 * median, "min_ms": 1e3 * min(times)}
            best["difference"] = check(work, found, frame)
    if failed is not None and not best:
        raise failed
    return {"peer": peer, **best, "versions": versions(packages)}


def main() -> None:
    warnings.filterwarnings("ignore")
    # Peers may print; the answers must stay alone on the stream they are read from.
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            found = answer(**request)
        except Exception as error:  # a peer that is not there, or cannot do this, is a line of the table
            words = str(error).strip().splitlines() or [""]
            found = {"peer": request["peer"], "skipped": f"{type(error).__name__}: {words[0][:150]}"}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
