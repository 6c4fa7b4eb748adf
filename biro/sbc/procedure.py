"""Simulation-based calibration (SBC) of a model, the layout of an observation and a sampler."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from biro.display.arguments import takes_likelihood
from biro.display.progress import bar
from biro.distributed.tasks.lost import LostTask
from biro.distributed.tasks.run import Workers, run_tasks, workers_of
from biro.errors import InputError, RunError
from biro.files.atomic import why_not_written, write_atomic
from biro.files.json_value import JsonValue
from biro.inference.posterior.samples import package_of
from biro.inference.samplers.options import parse_options
from biro.inference.samplers.sampling import run_seed
from biro.likelihood.likelihood import Likelihood
from biro.run.directory import RunDirectory
from biro.run.interrupt import RunInterrupted, StopFlag, stop_on_signal
from biro.run.record import read_facts, versions
from biro.sbc.replicate import FitWith, Replicates
from biro.sbc.result import SBCResult
from biro.sbc.rows import ReplicateRecords

if TYPE_CHECKING:
    from mpi4py import MPI

LINES = "replicates.jsonl"
RESULT = "sbc.json"
LEAST = 10
"""Fewer replicates say nothing."""
MOST = 1_000_000
"""More replicates, each a fit of some seconds, take months on any machine."""


@takes_likelihood
def run(
    likelihood: Likelihood,
    sampler: str = "emcee",
    *,
    replicates: int = 100,
    draws: int = 63,
    fit_with: FitWith | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    comm: MPI.Intracomm | None = None,
    progress: bool = True,
    facts: Mapping[str, object] | None = None,
    **options: object,
) -> SBCResult:
    """Simulation-based calibration: simulate from the prior, fit, and rank the truth among posterior draws.

    For each replicate, parameters (the truth) are drawn from the prior, data are simulated with the layout,
    flags and weights of the observation, and fitted. Where model, likelihood and sampler are right, the rank
    of the truth among draws from the posterior is uniform (Talts et al. 2018), and so is the rank of the
    truth's log-likelihood. Each replicate depends on its number and the seed alone.

    Parameters
    ----------
    likelihood : Likelihood
        Simulated from; its visibilities are not looked at.
    sampler : "emcee", "dynesty", "dynesty-dynamic", "tempering", "nuts" or "none"
    replicates : int
        At least 10. May be raised when a run is resumed.
    draws : int
        Nearly independent draws among which a truth is ranked; draws + 1 should have divisors.
    fit_with : function of Observation, optional
        Gives the likelihood that is fitted to simulated data; by default one like `likelihood`. Simulate with
        one model and fit with another to see whether the difference shows.
    run_dir : path, optional
        Keeps every finished replicate. The same call goes on with those that are missing.
    seed : int, optional
        Drawn, and recorded, when not given.
    workers : int, optional
        Processes. Default: one for each core; 1, which is this one, on a GPU.
    executor : concurrent.futures.Executor, optional
        Works off the replicates in the place of processes of our own: processes of MPI
        (`mpi4py.futures.MPIPoolExecutor`), a cluster (`get_executor` of a client of `dask.distributed`).
    comm : mpi4py.MPI.Intracomm, optional
        Processes of MPI, this one among them, that work off the replicates. The first alone returns: the
        others serve it, and end with it.
    progress : bool
        Show bars on stderr (`biro.display.progress`).
    facts : mapping, optional
        More to be written into `run.json`.
    **options
        Of the sampler.

    Raises
    ------
    InputError
        An unknown sampler or option; or `fit_with` cannot be used, or be sent to other processes; or the
        likelihood shares its data among processes, each of which needs all of them here.
    LikelihoodError
        No replicate could be fitted.
    RunError
        The run directory is in use, or belongs to a run that differs; or all replicates are done but those
        that ended their process three times, or that the executor lost: the same call tries them again.
    RunInterrupted
        SIGINT or SIGTERM came; the same call goes on.
    """
    if likelihood.observation.cache_folder is not None:
        raise InputError(
            "the data of this likelihood are in files, but SBC fits replicates in memory; read the data "
            "without cache="
        )
    if likelihood.choices.average:
        raise InputError('SBC fits all data, so it cannot test average="cells"; remove it')
    if comm is not None and likelihood.options.devices is not None:
        raise InputError("each MPI process uses its own GPU; remove devices=")
    if likelihood.is_shared:
        raise InputError(
            "MPI processes share the data of this likelihood, but in SBC each needs all data; give comm= "
            "to sbc.run, not to biro.read and Likelihood"
        )
    seed = run_seed(seed, run_dir)
    _check_numbers(replicates, draws)
    by = workers_of(workers, executor, comm, likelihood.backend)
    task = Replicates(likelihood, fit_with, sampler, options, draws, seed)
    fitted = task.fit_with(likelihood.observation)
    resolved = _resolved(sampler, options, fitted, draws)
    settings = _settings(likelihood, fitted, sampler, seed)
    about = _about(settings, resolved, draws, fitted, task)
    settings["options"] = {**resolved, "replicates": replicates, "draws": draws}
    with ExitStack() as stack:
        stop, run = stack.enter_context(stop_on_signal()), None
        if run_dir is not None:
            record = {"sbc": about, "likelihood": likelihood.description(), **(facts or {})}
            text = likelihood.full_model.to_toml()
            run = stack.enter_context(
                RunDirectory(run_dir, settings, may_change=("replicates",), facts=record, model_toml=text)
            )
        rows = ReplicateRecords(Path(run_dir) / LINES if run_dir is not None else None)
        _fill(rows, replicates, task, by, stop, progress=progress)
        result = SBCResult.of((row for row in rows.done if row["replicate"] < replicates), about)
        if run is not None:
            _finish(run, settings["options"], result)
        return result


def load(run_dir: str | os.PathLike[str]) -> SBCResult:
    """The result of the replicates that are done in a run directory.

    Raises
    ------
    RunError
        There is none.
    LikelihoodError
        No replicate is done, or none could be fitted.
    """
    about = read_facts(Path(run_dir)).get("sbc")
    if about is None:
        raise RunError(f"{run_dir}: not an SBC directory")
    return SBCResult.of(ReplicateRecords(Path(run_dir) / LINES).done, about)


def _check_numbers(replicates: int, draws: int) -> None:
    if not LEAST <= replicates <= MOST:
        raise InputError(f"SBC needs {LEAST} to {MOST} replicates, got {replicates}")
    if draws < 1:
        raise InputError(f"draws must be at least 1, got {draws}")


def _resolved(
    sampler: str, options: Mapping[str, object], fitted: Likelihood, draws: int
) -> dict[str, JsonValue]:
    """All options of the sampler, by name."""
    resolved: dict[str, JsonValue] = parse_options(sampler, options, max(1, len(fitted.parameters))).as_dict()
    if sampler == "none" and resolved["n_sample"] < draws:
        raise InputError(f"n_sample must be at least {draws} draws, got {resolved['n_sample']}")
    return resolved


def _about(
    settings: Mapping[str, JsonValue],
    options: Mapping[str, JsonValue],
    draws: int,
    fitted: Likelihood,
    task: Replicates,
) -> dict[str, JsonValue]:
    """What a result says about its run."""
    return {
        **settings,
        "sampler_options": dict(options),
        "draws": draws,
        "n_vis": int(fitted.n_data.sum()) // 2,
        "names": task.ranked_names(fitted.full),
        "versions": versions(),
    }


def _settings(likelihood: Likelihood, fitted: Likelihood, sampler: str, seed: int) -> dict[str, JsonValue]:
    """What decides the replicates, for the record that a resumed run is compared with."""
    return {
        "command": "sbc",
        "sampler": sampler,
        "seed": seed,
        "data": likelihood.data_digest(),
        "model": likelihood.full_model.digest(),
        "likelihood": likelihood.digest(),
        "fit with": f"{type(fitted).__qualname__} {fitted.digest()[:16]}",
        "sampler version": versions().get(package_of(sampler)),
    }


def _fill(
    rows: ReplicateRecords,
    replicates: int,
    task: Replicates,
    by: Workers,
    stop: StopFlag,
    *,
    progress: bool,
) -> None:
    """Work out the replicates that are missing."""
    todo = {f"replicate {k}": k for k in rows.missing(replicates)}
    lost: list[LostTask] = []
    done = replicates - len(todo)
    with bar("SBC", "replicates", total=replicates, initial=done, show=progress) as shown:
        try:
            for row in run_tasks(task, todo, by, stop, task.backend):
                if isinstance(row, LostTask):
                    lost.append(row)
                    continue
                rows.add(row)
                shown.update()
        except RunInterrupted:  # a sampler in this process met the signal first
            pass
    left = len(rows.missing(replicates))
    so_far = f"{replicates - left} of {replicates} replicates are done. The same command"
    if lost and not stop:
        others = f", and {len(lost) - 1} more were lost" if len(lost) > 1 else ""
        raise RunError(f"{lost[0].why}{others}; {so_far} tries again")
    if left:
        stop.raise_interrupted(f"{so_far} continues from there")


def _finish(run: RunDirectory, options: Mapping[str, object], result: SBCResult) -> None:
    """Write the result, for programs, and mark the run as finished."""
    run.reopen(options)
    path = run.path / RESULT
    try:
        write_atomic(path, (json.dumps(result.to_dict(), indent=1) + "\n").encode())
    except OSError as error:
        raise RunError(
            f"the replicates are done, but {path} cannot be written: {why_not_written(path, error)}"
        ) from None
    run.finish()
