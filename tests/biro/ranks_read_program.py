"""A likelihood of a set that ranks have read, as mpiexec starts it; figures go into a file of NumPy.

mpiexec -n 2 python tests/biro/ranks_read_program.py FILE SET [OPTION=VALUE ...]
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from real import CORE_3C273

import biro
from biro.distributed.data_on_ranks import STORE
from biro.errors import InputError
from biro.models.files.toml import from_toml

MODEL = CORE_3C273


def found(likelihood: biro.Likelihood) -> dict[str, np.ndarray]:
    """What rank 0 has of all data, and what shards sum up."""
    observation = likelihood.observation
    theta = likelihood.prior_transform(np.random.default_rng(2).uniform(size=(4, likelihood.n_param)))
    value, gradient = likelihood.log_likelihood_and_gradient(theta)
    of_data = {
        "data": np.array(likelihood.data_digest()),
        "counts": np.array(sorted(observation.counts.items())),
        "summary": np.array(str(observation.summary(likelihood.sky))),
        "prior": np.array(likelihood.model.digest()),  # with the range of the noise factor
        "n_vis": likelihood.n_vis,
        "weight": np.concatenate([part.antenna_weight() for part in observation.partitions]),
        "whole": np.array(observation.whole("a test").digest()),
    }
    sums = {
        "value": value,
        "gradient": gradient,
        "fisher": likelihood.fisher(theta[0]),
        "product": likelihood.fisher_product(theta[0], theta[1]),
        "scatter": np.array([np.std(each.scaled) for each in likelihood.residual_data(theta[0])]),
        "remarks": np.array(likelihood.remarks(theta[0])),
    }
    return of_data | sums


def n_held() -> int:
    """Visibilities that this process holds."""
    return sum(vis.size for shards in STORE.shards.values() for vis, _ in shards.values())


def main(file: str, path: str, options: dict[str, str]) -> None:
    """Read, and compute, on as many ranks as there are."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    observation = biro.read(path, comm=comm, **options)  # type: ignore[arg-type]
    if observation.is_distributed:
        with pytest.raises(InputError, match="MPI processes hold the data of this observation; give comm="):
            biro.Likelihood(observation, from_toml(MODEL), backend="cpu")
    with biro.Likelihood(observation, from_toml(MODEL), comm=comm, backend="cpu") as likelihood:
        assert likelihood.ranks is not None
        held = likelihood.ranks.do(n_held)
        np.savez(file, **found(likelihood), held=held, is_held=observation.is_distributed)


if __name__ == "__main__":
    main(*sys.argv[1:3], dict(pair.split("=") for pair in sys.argv[3:]))
