"""Other programs on the same workload, asked through `peer_worker.py` under an interpreter of their own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from common.types import Line

from chi2.cases import Case, field, first_times, sources

_WORKER = Path(__file__).with_name("peer_worker.py")
# Seconds to wait for an answer: the peers compile.
_PATIENCE = 300.0
# Source-visibilities a thread of one call of a peer that takes row by row; others get whole times.
_ROW_WORK, _TIMES = 5e6, 20
_ROWS = ("numpy", "africanus", "africanus_dde")


class Peers:
    """The peers of a run; answers are kept, since cases share workloads.

    Attributes
    ----------
    names : tuple of str
        Those that may be asked.
    skipped : dict name -> reason
        Those that are not installed, as found when they were asked first; in a quick run, all but NumPy.
    versions : dict package -> version
    """

    def __init__(
        self, python: str, device: str, threads: int, *, quick: bool, names: tuple[str, ...] = ()
    ) -> None:
        of_chi2 = "numpy", "africanus", "matvis_cuda" if device == "cuda" else "matvis"
        self.names = names or of_chi2
        # Other programs compile for a minute.
        others = [name for name in self.names if name != "numpy"]
        self.skipped = dict.fromkeys(others, "not asked by a quick run") if quick else {}
        for name, reason in self.skipped.items():
            print(f"{name} is left out: {reason}")
        self.versions: dict[str, str] = {}
        self._python, self._threads = python, threads
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._answers: dict[tuple[object, ...], Line] = {}

    def rates(self, case: Case, precision: str, seconds: float) -> dict[str, Line]:
        """What each peer says of a case: rate, variant and so on, or "skipped" with the reason."""
        found = {}
        for peer in self.names:
            key = peer, precision, _sizes(case)
            if peer not in self.skipped and key not in self._answers:
                self._answers[key] = self._ask(peer, case, precision, seconds)
            if peer not in self.skipped:
                found[peer] = self._answers[key]
        return found

    def close(self) -> None:
        for process in self._processes.values():
            process.terminate()
            process.wait()
        self._processes.clear()

    def _ask(self, peer: str, case: Case, precision: str, seconds: float) -> Line:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "work.npz"
            n_most = self._threads * _ROW_WORK if peer in _ROWS else None
            np.savez(path, **arrays(case, precision, n_most))
            request = {"peer": peer, "path": str(path), "seconds": seconds, "threads": self._threads}
            answer = self._exchange(peer, json.dumps(request))
        why = answer.get("skipped", "")
        if why.startswith(("ModuleNotFoundError", "ImportError", "no answer")):
            self.skipped[peer] = why
            print(f"{peer} is left out: {why}", flush=True)
        self.versions |= answer.pop("versions", {})
        return answer

    def _exchange(self, peer: str, request: str) -> Line:
        process = self._processes.get(peer) or self._start(peer)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            line = process.stdout.readline() if select.select([process.stdout], [], [], _PATIENCE)[0] else ""
        except BrokenPipeError:
            line = ""
        if not line:
            return {"skipped": f"no answer from {self._python}"}
        return dict(json.loads(line))

    def _start(self, peer: str) -> subprocess.Popen[str]:
        """A worker. Where it takes rows on threads of its own, BLAS must not start others under each."""
        n_thread = 1 if peer in _ROWS else self._threads
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        self._processes[peer] = subprocess.Popen(
            [self._python, str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **dict.fromkeys(names, str(n_thread))},
        )
        return self._processes[peer]


def _sizes(case: Case) -> tuple[object, ...]:
    """What decides a peer's work."""
    n_times = case.n_antenna, case.n_time, case.n_chan
    return (*n_times, case.n_point, case.n_gaussian, case.polarised)


def arrays(case: Case, precision: str, n_most: float | None) -> Line:
    """The work file: the first rows of the case, of `n_most` source-visibilities, or its first times."""
    sky, whole = sources(case), field(case)
    n_time = min(_TIMES, whole.rows.n_time) if n_most is None else whole.rows.n_time
    rows = first_times(whole, n_time).rows
    n_row = rows.n_row
    if n_most is not None:
        n_row = min(n_row, max(1, int(n_most / (rows.n_chan * sky.n_source))))
    return {
        "uvw": rows.uvw[:n_row],
        "antenna1": rows.antenna1[:n_row],
        "antenna2": rows.antenna2[:n_row],
        "time_index": rows.time_index[:n_row],
        "chan_freq": rows.chan_freq,
        "matrix": rows.stokes_to_corr,
        "antenna_uvw": whole.antenna_uvw[:n_time],
        "lm": sky.lm[0],
        "stokes": sky.stokes[0, 0],
        "alpha": sky.spectral_terms[0, :, 0, 0],
        "ref_freq": sky.ref_freq,
        "shape": sky.shape[0],
        "single": precision == "single",
    }
