"""`biro.fit_each`: one fit for each data set and sky model, each in a run directory of its own."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from biro.display.formatting import check_names
from biro.display.progress import bar
from biro.distributed.tasks.cores import refuse_both, worker_number
from biro.distributed.tasks.executor import in_executor
from biro.distributed.tasks.lost import LostTask
from biro.distributed.tasks.pool import in_processes
from biro.errors import InputError, OutputError, RunError
from biro.files.atomic import why_not_written, write_atomic
from biro.files.json_value import finite_json
from biro.inference.samplers.options import check_sampler
from biro.inference.samplers.sampling import run_seed
from biro.io.data_set.options import SetOptions
from biro.likelihood.likelihood import Likelihood
from biro.likelihood.options import EngineKeywords
from biro.many_fits.one_fit import Data, Fit, FitProblem, FitTask
from biro.many_fits.results import FitResults
from biro.models import SkyModel
from biro.observation.join import distinct_paths, set_names
from biro.run.interrupt import RunInterrupted, StopFlag, stop_on_signal
from biro.run.record import read_record
from rime_kernels.device import resolve

SUMMARY = "fits.json"
"""The file of all results, in the directory above those of the fits."""


def fit_each(
    data: Mapping[str, Data] | Sequence[str | os.PathLike[str]],
    sky: SkyModel | Mapping[str, SkyModel],
    sampler: str = "emcee",
    *,
    run_dir: str | os.PathLike[str],
    seed: int | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    reading: Mapping[str, Any] | None = None,
    likelihood: Mapping[str, Any] | None = None,
    progress: bool = True,
    **options: object,
) -> FitResults:
    """Fit each data set by itself, all with the same sky model or with each of several.

    Each fit is what `biro.read`, `Likelihood` and `biro.sample` make of it, in a run directory of its own. A
    fit that fails, or whose process dies three times, costs itself alone. The same call goes on with fits
    that were interrupted, tries those again that failed, and reads those that are finished.

    Processes of our own are spawned: in a script, call it under `if __name__ == "__main__":`.

    Parameters
    ----------
    data : sequence of path, or mapping of path or Observation by name
        Paths are read where they are fitted. Without names, each is called by the end of its path that tells
        it from the others, without its suffix.
    sky : SkyModel, or mapping of SkyModel by name
        With several models, fits are called "data/model".
    sampler : str
        As of `biro.sample`.
    run_dir : path
        Has a directory for each fit, called as it is, and `fits.json` with all results at the end.
    seed : int, optional
        Each fit has a seed that follows from this one and its name; drawn, and recorded, when not given.
    workers : int, optional
        Processes, which share the cores. Default: one for each core; on a GPU, one.
    executor : concurrent.futures.Executor, optional
        Works off the fits in the place of processes of our own, as `biro.sbc.run` says. All must see the
        same files.
    reading : mapping, optional
        Arguments of `biro.read`.
    likelihood : mapping, optional
        Arguments of `Likelihood`, but for `comm`.
    progress : bool
        Show a bar on stderr.
    **options
        Of the sampler.

    Returns
    -------
    FitResults

    Raises
    ------
    InputError
        Arguments that are not understood, names that cannot be those of directories; or what cannot be sent
        to other processes.
    RunError
        `run_dir` is the directory of a single fit; or processes die as they start.
    RunInterrupted
        SIGINT or SIGTERM came; the same call goes on.
    OutputError
        All fits are done, but their results cannot be written together.

    Examples
    --------
    >>> fits = fit_each(["day1.ms", "day2.ms"], sky, run_dir="days", reading={"stokes": "I"})
    >>> fits["day1"].summary["core.I"].median
    """
    check_sampler(sampler)
    reading, likelihood = reading or {}, likelihood or {}
    check_names(reading, [*SetOptions.__annotations__, "comm", "cache", "progress"], "read")
    arguments = inspect.signature(Likelihood).parameters.values()
    by_keyword = [
        each.name for each in arguments if each.kind is each.KEYWORD_ONLY and each.name != "options"
    ]
    shared = [*by_keyword, *(each for each in EngineKeywords.__annotations__ if each != "comm")]
    check_names(likelihood, shared, "Likelihood of fit_each")
    refuse_both(workers, executor)
    if seed is not None:
        run_seed(seed, None)
    folder = Path(run_dir)
    if read_record(folder) is not None:
        raise RunError(f"{folder} is the run directory of a single fit; give another one")
    problems = {problem.name: problem for problem in _problems(named(data), sky, folder)}
    task = FitTask(sampler, seed, reading, likelihood, options)
    with stop_on_signal() as stop:
        if executor is None:
            n_worker = worker_number(workers, resolve(likelihood.get("backend", "auto"))[0])
            found = in_processes(task, problems, n_worker, stop)
        else:
            found = in_executor(task, problems, executor, stop)
        fits = FitResults(_collected(found, problems, stop, progress=progress))
    _write(folder / SUMMARY, fits)
    return fits


def named(data: Mapping[str, Data] | Sequence[str | os.PathLike[str]]) -> Mapping[str, Data]:
    """Data sets by name."""
    if isinstance(data, Mapping):
        return data
    paths = distinct_paths(data, "fit_each")
    names = set_names([str(Path(path).absolute().with_suffix("")) for path in paths])
    return dict(zip([name.replace("/", "_") for name in names], paths, strict=True))


def _problems(
    data: Mapping[str, Data], sky: SkyModel | Mapping[str, SkyModel], folder: Path
) -> list[FitProblem]:
    """All fits, by data set and then by model."""
    several = isinstance(sky, Mapping)
    skies = sky if isinstance(sky, Mapping) else {"": sky}
    for name in [*data, *(skies if several else ())]:
        if not name or name in (".", "..") or "/" in name or not name.isprintable():
            raise InputError(
                f"{name!r} cannot be the name of a fit, because it must be a valid directory name"
            )
    if not data or not skies:
        raise InputError("fit_each needs data sets and a sky model, found none")
    return [
        FitProblem(f"{of}/{model}" if several else of, folder / of / model, observed, sky_model)
        for of, observed in data.items()
        for model, sky_model in skies.items()
    ]


def _collected(
    found: Iterator[Fit | LostTask], problems: Mapping[str, FitProblem], stop: StopFlag, *, progress: bool
) -> tuple[Fit, ...]:
    """The fits in the order of the problems.

    Raises
    ------
    RunInterrupted
        Not all were begun.
    """
    fits: dict[str, Fit] = {}
    with bar("fits", "fits", total=len(problems), show=progress) as shown:
        try:
            for fit in found:
                if isinstance(fit, LostTask):
                    fit = Fit(fit.name, problems[fit.name].run_dir, failure=fit.why)
                fits[fit.name] = fit
                shown.update()
        except RunInterrupted:  # a process of the executor met the signal first
            pass
    if len(fits) < len(problems):
        stop.raise_interrupted(f"{len(fits)} of {len(problems)} fits are done. The same command continues")
    return tuple(fits[name] for name in problems)


def _state(fits: FitResults) -> str:
    """How many fits are done, and why the first of the others failed."""
    if not fits.failed:
        return "all fits are done"
    first = fits.failed[0]
    return f"{len(fits) - len(fits.failed)} of {len(fits)} fits are done ({first.name}: {first.failure})"


def _write(path: Path, fits: FitResults) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, (json.dumps(finite_json(fits.to_dict()), indent=1) + "\n").encode())
    except OSError as error:
        raise OutputError(
            f"{_state(fits)}, but {path} cannot be written: {why_not_written(path, error)}"
        ) from error
