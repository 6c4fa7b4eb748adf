"""Simulation-based calibration: whether posteriors mean what they say, for a user's own model and data."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tqdm import tqdm

from biro.errors import InputError, RunError
from biro.files.atomic import write_atomic
from biro.posterior.samples import package_of
from biro.run.directory import RunDirectory
from biro.run.interrupt import RunInterrupted, StopFlag, stop_on_signal
from biro.run.record import read_facts, read_record, versions
from biro.sbc.pool import n_core, rows_of
from biro.sbc.replicate import FitWith, Replicates
from biro.sbc.result import Calibration
from biro.sbc.rows import Rows

LINES = "replicates.jsonl"
RESULT = "sbc.json"
LEAST = 10
"""Replicates from which anything can be said."""


def run(
    likelihood: Any,
    sampler: str = "emcee",
    *,
    replicates: int = 100,
    draws: int = 63,
    fit_with: FitWith | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    workers: int | None = None,
    progress: bool = True,
    facts: Mapping[str, Any] | None = None,
    **options: Any,
) -> Calibration:
    """Whether posteriors mean what they say: simulate from the prior, fit, and rank the truth.

    For each replicate, parameters are drawn from the prior, data are made from them with the layout, flags
    and weights of the observation, and fitted; the rank of the truth among draws from the posterior is
    uniform where model, likelihood and sampler are right (Talts et al. 2018). So is that of the truth's
    log-likelihood. Each replicate follows from its number and the seed alone.

    Parameters
    ----------
    likelihood : Likelihood
        Simulated from; its visibilities are not looked at.
    sampler : "emcee", "dynesty", "dynesty-dynamic", "nuts" or "none"
    replicates : int
        At least 10. May be raised when a calibration is resumed.
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
    progress : bool
        Show a progress line on stderr.
    facts : mapping, optional
        More to be written into `run.json`.
    **options
        Of the sampler.

    Raises
    ------
    InputError
        An unknown sampler or option; or `fit_with` cannot be used, or be sent to other processes.
    LikelihoodError
        No replicate could be fitted.
    RunError
        The run directory is in use, or belongs to a calibration that differs; or a replicate ended its
        process three times.
    RunInterrupted
        SIGINT or SIGTERM came; the same call goes on.
    """
    seed = _seed(seed, run_dir)
    n_worker = _n_worker(likelihood, replicates, draws, workers)
    task = Replicates(likelihood, fit_with, sampler, options, draws, seed)
    fitted = task.fit_with(likelihood.observation)
    resolved = _resolved(sampler, options, fitted, draws)
    settings = _settings(likelihood, fitted, sampler, seed) | {
        "options": {**resolved, "replicates": replicates, "draws": draws}
    }
    names = task.ranked_names(fitted)
    about = {key: value for key, value in settings.items() if key != "options"}
    about |= {"sampler_options": resolved, "draws": draws, "n_vis": int(fitted.n_vis.sum())}
    about |= {"names": names, "versions": versions()}
    with ExitStack() as stack:
        stop, run = stack.enter_context(stop_on_signal()), None
        if run_dir is not None:
            record = {"calibration": about, "likelihood": likelihood.description(), **(facts or {})}
            text = likelihood.model.to_toml()
            run = stack.enter_context(
                RunDirectory(run_dir, settings, may_change=("replicates",), facts=record, model_toml=text)
            )
        rows = Rows(Path(run_dir) / LINES if run_dir is not None else None)
        _fill(rows, replicates, task, n_worker, stop, progress=progress)
        found = Calibration.of([row for row in rows.done if row["replicate"] < replicates], names, about)
        if run is not None:
            _finish(run, settings, found)
        return found


def load(run_dir: str | os.PathLike[str]) -> Calibration:
    """The calibration of a run directory, of the replicates that are done.

    Raises
    ------
    RunError
        There is none.
    LikelihoodError
        No replicate is done, or none could be fitted.
    """
    about = read_facts(Path(run_dir)).get("calibration")
    if about is None:
        raise RunError(f"{run_dir}: no calibration began there")
    return Calibration.of(Rows(Path(run_dir) / LINES).done, about["names"], about)


def _seed(seed: int | None, run_dir: str | os.PathLike[str] | None) -> int:
    """The seed that was given, or that of the calibration that goes on, or a new one."""
    record = read_record(Path(run_dir)) if seed is None and run_dir is not None else None
    if record is not None:
        seed = record["settings"].get("seed")
    if seed is None:
        seed = secrets.randbelow(2**31)
    if not 0 <= seed < 2**32:
        raise InputError(f"seed must be from 0 to 2^32 - 1, got {seed}")
    return seed


def _n_worker(likelihood: Any, replicates: int, draws: int, workers: int | None) -> int:
    if replicates < LEAST:
        raise InputError(f"a calibration needs at least {LEAST} replicates, got {replicates}")
    if draws < 1:
        raise InputError(f"draws must be at least 1, got {draws}")
    if workers is None:
        return 1 if likelihood.backend == "cuda" else n_core()
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    return workers


def _resolved(sampler: str, options: Mapping[str, Any], fitted: Any, draws: int) -> dict[str, Any]:
    """All options of the sampler, by name."""
    from biro.samplers.options import KINDS, as_dict, parse
    from biro.samplers.sampling import SAMPLERS

    if sampler not in SAMPLERS:
        raise InputError(f"unknown sampler {sampler!r}; there are {', '.join(SAMPLERS)}")
    kind: Any = KINDS[sampler]
    resolved = as_dict(parse(kind, dict(options), len(fitted.parameters)))
    if sampler == "none" and resolved["n_sample"] < draws:
        raise InputError(f"n_sample must be at least {draws} draws, got {resolved['n_sample']}")
    return resolved


def _settings(likelihood: Any, fitted: Any, sampler: str, seed: int) -> dict[str, Any]:
    """What decides the replicates, for the record that a resumed calibration is held against."""
    return {
        "command": "sbc",
        "sampler": sampler,
        "seed": seed,
        "data": likelihood.observation.digest(),
        "model": likelihood.model.digest(),
        "likelihood": likelihood.digest(),
        "fit with": f"{type(fitted).__qualname__} {fitted.digest()[:16]}",
        "sampler version": versions().get(package_of(sampler)),
    }


def _fill(
    rows: Rows, replicates: int, task: Replicates, n_worker: int, stop: StopFlag, *, progress: bool
) -> None:
    """Work out the replicates that are missing."""
    todo = rows.missing(replicates)
    done = replicates - len(todo)
    with tqdm(
        total=replicates, initial=done, unit=" replicates", desc="calibrating", disable=not progress
    ) as bar:
        try:
            for row in rows_of(task, todo, n_worker, stop):
                rows.add(row)
                bar.update()
        except RunInterrupted:  # a sampler in this process met the signal first
            pass
    left = len(rows.missing(replicates))
    if left:
        stop.raise_interrupted(
            f"{replicates - left} of {replicates} replicates are done, the same command goes on from there"
        )


def _finish(run: RunDirectory, settings: Mapping[str, Any], found: Calibration) -> None:
    """Write what was found, for programs, and note that it is there."""
    run.reopen(settings["options"])
    path = run.path / RESULT
    try:
        write_atomic(path, (json.dumps(found.to_dict(), indent=1) + "\n").encode())
    except OSError as error:
        raise RunError(
            f"{path} cannot be written ({error.strerror}); the same command writes it from the replicates"
        ) from None
    run.finish()
