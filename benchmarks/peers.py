"""Other programs on the same workload, asked through `peer_worker.py` under an interpreter of their own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cases import Case, field, first_times, sources

_WORKER = Path(__file__).with_name("peer_worker.py")
# Seconds to wait for an answer: the peers compile.
_PATIENCE = 300.0
# Source-visibilities a thread of one call of a peer that takes row by row; others get whole times.
_ROW_WORK, _TIMES = 5e6, 20
_ROWS = ("numpy", "africanus")


class Peers:
    """The peers of a run; answers are kept, since cases share workloads.

    Attributes
    ----------
    names : tuple of str
        Those that may be asked.
    skipped : dict name -> reason
        Those that are not installed, as found when they were asked first.
    versions : dict package -> version
    """

    def __init__(self, python: str, device: str, threads: int) -> None:
        self.names = ("numpy", "africanus", "matvis_cuda" if device == "cuda" else "matvis")
        self.skipped: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self._python, self._threads = python, threads
        self._process: subprocess.Popen[str] | None = None
        self._answers: dict[Any, dict[str, Any]] = {}

    def rates(self, case: Case, precision: str, seconds: float) -> dict[str, dict[str, Any]]:
        """What each peer says of a case: rate, variant and so on, or "skipped" with the reason."""
        found = {}
        for peer in self.names:
            key = peer, replace(case, name="", form=""), precision
            if peer not in self.skipped and key not in self._answers:
                self._answers[key] = self._ask(peer, case, precision, seconds)
            if peer not in self.skipped:
                found[peer] = self._answers[key]
        return found

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _ask(self, peer: str, case: Case, precision: str, seconds: float) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "work.npz"
            np.savez(
                path, **_arrays(case, precision, n_most=self._threads * _ROW_WORK if peer in _ROWS else None)
            )
            request = {"peer": peer, "path": str(path), "seconds": seconds, "threads": self._threads}
            answer = self._exchange(json.dumps(request))
        why = answer.get("skipped", "")
        if why.startswith(("ModuleNotFoundError", "ImportError", "no answer")):
            self.skipped[peer] = why
            print(f"{peer} is left out: {why}", flush=True)
        self.versions |= answer.pop("versions", {})
        return answer

    def _exchange(self, request: str) -> dict[str, Any]:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            line = process.stdout.readline() if select.select([process.stdout], [], [], _PATIENCE)[0] else ""
        except BrokenPipeError:
            line = ""
        if not line:
            self.close()
            return {"skipped": f"no answer from {self._python}"}
        return dict(json.loads(line))

    def _start(self) -> subprocess.Popen[str]:
        """The worker, with all threads for itself while it is asked; its warnings go nowhere."""
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, str(self._threads))}
        self._process = subprocess.Popen(
            [self._python, str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        return self._process


def _arrays(case: Case, precision: str, n_most: float | None) -> dict[str, Any]:
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
