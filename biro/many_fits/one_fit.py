"""One fit of many, in a run directory of its own."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from biro.distributed.messages import failure_of
from biro.errors import BiroError, RunError
from biro.inference.posterior.table import PosteriorTable
from biro.inference.samplers.sampling import sample
from biro.io.measurement_set.opened import CORRECTED
from biro.io.reading import read
from biro.likelihood.likelihood import Likelihood
from biro.models import SkyModel
from biro.observation.observation import Observation
from biro.run.facts import asked_precision, check_saved, observed_facts
from biro.run.interrupt import RunInterrupted
from biro.run.log_file import NOTICE, LogFile
from rime_kernels.choices import Backend
from rime_kernels.device import resolve
from rime_kernels.geometry import Form

log = logging.getLogger(__name__)

Data = str | os.PathLike[str] | Observation


class Fit(NamedTuple):
    """What became of one fit.

    Attributes
    ----------
    name : str
    run_dir : Path
    summary : PosteriorTable or None
        What `Posterior.summary` gives; None where the fit failed.
    failure : str
        Why it failed, in one line; "" where it did not.
    """

    name: str
    run_dir: Path
    summary: PosteriorTable | None = None
    failure: str = ""

    def to_dict(self) -> dict[str, object]:
        """Plain numbers and text, for JSON."""
        result = {"failure": self.failure} if self.summary is None else {"result": self.summary.to_dict()}
        return {"run": str(self.run_dir), **result}


class FitProblem(NamedTuple):
    """What one fit is of."""

    name: str
    run_dir: Path
    data: Data
    sky: SkyModel


@dataclass(frozen=True)
class FitTask:
    """What all of many fits share; does any of them, also in another process, which reads the data itself.

    Parameters
    ----------
    sampler : str
    seed : int or None
        Each fit has one of its own, which follows from this and its name.
    reading : mapping
        Arguments of `biro.read`.
    likelihood : mapping
        Arguments of `Likelihood`.
    options : mapping
        Of the sampler.
    """

    sampler: str
    seed: int | None
    reading: Mapping[str, Any]  # arguments of any type
    likelihood: Mapping[str, Any]
    options: Mapping[str, Any]

    def __call__(self, problem: FitProblem) -> Fit:
        """One fit; an error in it is a result like others."""
        name, run_dir = problem.name, problem.run_dir
        try:
            return Fit(name, run_dir, self._summary(problem))
        except RunInterrupted:
            raise
        except BiroError as error:
            return Fit(name, run_dir, failure=str(error))
        except Exception as error:
            return Fit(name, run_dir, failure=str(failure_of(error, "a fault")))

    def _summary(self, problem: FitProblem) -> PosteriorTable:
        run_dir, facts = problem.run_dir, {}
        if not isinstance(problem.data, Observation):
            facts = observed_facts([Path(problem.data)], self.reading)
        with self._likelihood(problem) as likelihood:
            posterior = sample(
                likelihood,
                self.sampler,
                run_dir=run_dir,
                seed=self._seed(problem.name),
                progress=False,
                facts=facts,
                **self.options,
            )
        check_saved(run_dir)
        return posterior.summary()

    def _likelihood(self, problem: FitProblem) -> Likelihood:
        """Read the data and bind the model; what is said goes into the log file of the run that follows."""
        run_dir, data = problem.run_dir, problem.data
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"run directory {run_dir} cannot be made: {error.strerror}") from error
        file = LogFile(run_dir / "log.txt")
        try:
            observation = data if isinstance(data, Observation) else read(data, **self.reading)
            precision = asked_precision(self.likelihood.get("precision", "double"), run_dir)
            likelihood = Likelihood(observation, problem.sky, **{**self.likelihood, "precision": precision})
            for line in lines_before(likelihood):
                log.log(NOTICE, "%s", line)
            return likelihood
        except BiroError as error:
            log.error("%s", error)
            raise
        finally:
            file.close()

    def _seed(self, name: str) -> int | None:
        if self.seed is None:
            return None
        return int.from_bytes(hashlib.sha256(f"{self.seed} {name}".encode()).digest()[:4])


GIVEN_CALIBRATION = (
    f"data: the errors are given the calibration in {CORRECTED}. They leave out its own errors; to include "
    "these, fit DATA with [gain] in the model"
)
"""What errors leave out where gains were taken out of the data before the fit."""


def lines_before(likelihood: Likelihood) -> list[str]:
    """What a user should know of data and model before a fit begins, each once.

    Degenerate parameters and gains of single baselines are named with the result, by every sampler.
    """
    observation, sky, model = likelihood.observation, likelihood.sky, likelihood.model
    lines = [
        *observation.reading_lines,
        GIVEN_CALIBRATION if observation.column == CORRECTED and not sky.gains else "",
        *observation.instrument_lines(sky),
        *likelihood.choices.gains,
        *likelihood.choices.average,
        *likelihood.choices.smearing,
        observation.ionosphere_line(sky),
        *model.gain_lines,
    ]
    return list(dict.fromkeys(line for line in lines if line))


def problem_line(likelihood: Likelihood, backend: Backend) -> str:
    """Number of parameters and visibilities, precision and device; the log has the reasons."""
    free = "1 free parameter" if likelihood.n_param == 1 else f"{likelihood.n_param} free parameters"
    n = likelihood.n_process
    shared = f", shared by {n} MPI processes" if n > 1 else ""
    if folder := likelihood.observation.cache_folder:
        shared += f", in files of {folder}"
    device, why = resolve(backend)
    log.info("%s; %s", _forms_text(likelihood.choices.forms), why)
    unit = {"cpu": "CPU", "cuda": "GPU"}[device]
    return (
        f"{free}, {likelihood.n_vis.sum()} visibilities{shared}; {likelihood.precision} precision, {unit} "
        "(details with -v)"
    )


def _forms_text(forms: list[Form]) -> str:
    """How many partitions take which form of the phases, and why: "8 partitions: row form because ..."."""
    reasons = {
        "factored": "antenna coordinates reproduce the uvw of all rows",
        "row": "antenna coordinates do not reproduce the uvw of all rows closely enough",
    }
    counted = {form: forms.count(form) for form in dict.fromkeys(forms)}
    return ", ".join(
        f"{n} partition{'s' * (n != 1)}: {form} form because {reasons[form]}" for form, n in counted.items()
    )
