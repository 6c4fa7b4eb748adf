"""What a likelihood asks of a treatment of gains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from biro.choices import Gains
from biro.errors import InputError
from biro.inference.target.protocol import InnerDraws
from biro.likelihood.integrals.inner_parameters import InnerParameters
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation

Array = NDArray[np.float64]
INNER_GAINS = ("marginalise", "solve")
"""Treatments for which gains with priors are no parameters of theta."""


def check_gains(gains: str) -> None:
    """Refuse a word that is none of `Gains`.

    Raises
    ------
    InputError
    """
    if gains not in get_args(Gains):
        known = ", ".join(f'"{word}"' for word in get_args(Gains))
        raise InputError(f"gains must be one of {known}, got {gains!r}")


def data_digest(observation: Observation, gains: str = "sample") -> str:
    """sha256 of the data that are fitted, visibilities or closures: evidences are of the same data."""
    digest = observation.digest()
    return f"{gains}:{digest}" if gains == "closures" else digest


class Information(Protocol):
    """The Fisher information at one theta."""

    def matrix(self) -> Array:
        """float64 (n_param, n_param)."""

    def product(self, change: Array) -> Array:
        """The matrix times one change of theta (1, n_param): float64 (n_param,)."""


class GainTreatment(Protocol):
    """The log-likelihood of all partitions, with its derivatives.

    Batches hold parameter vectors that the model's constraints allow. A value that is not a number is NaN or
    infinite, and the derivatives of such a row mean nothing.
    """

    @property
    def n_vis(self) -> NDArray[np.int64]:
        """Complex visibilities that count, of each partition."""

    @property
    def n_data(self) -> NDArray[np.int64]:
        """Real numbers that chi2 of each partition is a sum over."""

    @property
    def lines(self) -> list[str]:
        """What a user should know before the figures, a line each."""

    @property
    def identity(self) -> list[str]:
        """What decides the value beside data and model; empty where nothing does."""

    @property
    def noise(self) -> str:
        """How noise is distributed, in words."""

    def chi2(self, batch: ThetaBatch) -> Array:
        """float64 (n_batch, n_partition), with weights as they are."""

    def log_likelihood(self, batch: ThetaBatch) -> Array:
        """float64 (n_batch,)."""

    def log_likelihood_and_gradient(self, batch: ThetaBatch) -> tuple[Array, Array]:
        """ln L, and its derivatives with respect to theta, float64 (n_batch, n_param)."""

    def fisher(self, batch: ThetaBatch) -> Information:
        """The Fisher information for a batch of one."""

    def corrected(self, vis: Sequence[NDArray[np.complexfloating]], batch: ThetaBatch) -> Observation:
        """The data as model visibilities of a batch of one are to be compared with them.

        With the gains taken out that fit these best, if any are, and with the weights that the noise has but
        for the noise factors of partitions.
        """

    def weights(
        self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None = None
    ) -> Sequence[NDArray[np.floating]]:
        """s^2 / v of each partition for a batch of one, of a model with `vis`; by default that of theta.

        v is the variance of the real and of the imaginary part, s the noise factor of the partition.
        """

    def remarks(self, batch: ThetaBatch) -> list[str]:
        """What makes the value doubtful, for a batch of one: the best fit."""


class InnerGainTreatment(GainTreatment, Protocol):
    """A treatment that integrates over some parameters, or takes their best values: theta has the others."""

    @property
    def inner(self) -> InnerParameters:
        """The parameters that theta lacks."""

    def best(self, batch: ThetaBatch) -> ThetaBatch:
        """Vectors of the full model, with these at their most probable values; NaN where there are none."""

    def of_sky(self, batch: ThetaBatch) -> ThetaBatch:
        """theta of the model that visibilities are predicted from, for a batch of one."""

    def correction(self, batch: ThetaBatch) -> tuple[float, float, float] | None:
        """ln of the integral less its approximation, its error, and the least share of draws that count.

        For a batch of one; None where the integral is exact, or where nothing is integrated over.
        """

    def draws(self, batch: ThetaBatch, rng: np.random.Generator) -> InnerDraws:
        """A draw of these for each vector of the others."""
