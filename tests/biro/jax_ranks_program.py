"""A compiled program of JAX on rank 0, with data on all ranks.

mpiexec -n 2 python tests/biro/jax_ranks_program.py FILE
"""

from __future__ import annotations

import sys

import jax
import numpy as np
from mpi4py import MPI
from ranks_program import MODEL, made

import biro
import biro.jax
from biro.models.files.toml import from_toml

jax.config.update("jax_enable_x64", True)
with biro.Likelihood(made(), from_toml(MODEL), comm=MPI.COMM_WORLD, backend="cpu") as likelihood:
    theta = likelihood.prior_transform(np.random.default_rng(2).uniform(size=(4, 2)))
    call = jax.jit(jax.vmap(jax.value_and_grad(biro.jax.likelihood(likelihood).log_likelihood)))
    value, gradient = call(theta)
    (vis,), pull = jax.vjp(biro.jax.model(likelihood), theta[0])
    (pulled,), ranks = pull((vis,)), likelihood.description()["ranks"]
    np.savez(sys.argv[1], value=value, gradient=gradient, vis=vis, pulled=pulled, ranks=ranks)
