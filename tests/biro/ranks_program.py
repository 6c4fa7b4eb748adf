"""A likelihood of ranks, as mpiexec starts it: what rank 0 computes goes into a file of NumPy.

mpiexec -n 2 python tests/biro/ranks_program.py FILE [what]
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import biro
from biro.models.files.toml import from_toml
from rime_kernels.engine.local_shards import ShardCall

MODEL = """
[[source]]
name = "a"
type = "point"
east = "3 arcsec"
north = { prior = "uniform", low = -20, high = 20, unit = "arcsec" }
I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }
[noise]
factor = 1
"""


def made(seed: int = 1) -> biro.Observation:
    """Five antennas, eight times, and noise of 0.1 Jy."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(5, k=1)
    place, n_time = rng.normal(scale=800.0, size=(5, 3)), 8
    p, q = np.tile(first, n_time), np.tile(second, n_time)
    shape = (p.size, 3, 2)
    return biro.Observation.from_arrays(
        vis=1.0 + 0.1 * (rng.normal(size=shape) + 1j * rng.normal(size=shape)),
        uvw=place[p] - place[q],
        antenna1=p,
        antenna2=q,
        time=np.repeat(np.arange(n_time) * 10.0, first.size),
        chan_freq=1e9 + 1e6 * np.arange(3),
        corr_type=["XX", "YY"],
        weight=np.full(shape, 100.0),
    )


def found(likelihood: biro.Likelihood) -> dict[str, np.ndarray]:
    """All that ranks sum or predict, at some points."""
    theta = likelihood.prior_transform(np.random.default_rng(2).uniform(size=(4, 2)))
    rime = likelihood._engines.rimes[0]
    residual = np.repeat(likelihood.observation.partitions[0].vis[None], len(theta), axis=0)
    value, gradient = likelihood.log_likelihood_and_gradient(theta)
    return {
        "chi2": likelihood.chi2(theta),
        "value": value,
        "gradient": gradient,
        "vis": likelihood.predict(theta[0])[0],
        "adjoint": rime.adjoint(likelihood._engines.sources(likelihood.model.at(theta))[0], residual).stokes,
    }


def kill_once_there(chain: Path) -> None:
    """End this process as kill -9 does, once a chain has some of its steps on disk."""
    while not chain.exists() or chain.stat().st_size < 10_000:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def main(file: str, what: str) -> None:
    """Compute, on as many ranks as there are."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    observation = made(1 + comm.rank) if what == "other data" else made()
    if what == "raises" and comm.rank == 1:
        ShardCall.begin = lambda *_: 1 / 0  # type: ignore[assignment, method-assign]
    if what == "killed" and comm.rank == 1:
        ShardCall.begin = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment, method-assign]
    if what == "garbled" and comm.rank == 1:
        ShardCall.begin = lambda *_: lambda: lambda: 0  # type: ignore[assignment, method-assign]  # no answer to send
    run = Path(file).with_suffix(".run")
    if what == "killed while it is sampled" and comm.rank == 1:
        threading.Thread(target=kill_once_there, args=(run / "chain.bin",), daemon=True).start()
    with biro.Likelihood(observation, from_toml(MODEL), comm=comm, backend="cpu") as likelihood:
        if "sampled" in what:
            sampled = {"n_walker": 8, "max_steps": 500, "seed": 3, "progress": False}
            np.savez(file, samples=biro.sample(likelihood, run_dir=run, **sampled).samples)
            return
        np.savez(file, **found(likelihood), plan=likelihood.plan(), ranks=likelihood.description()["ranks"])
    Path(file).with_suffix(".by").write_text(str(comm.rank))  # by rank 0 alone


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
