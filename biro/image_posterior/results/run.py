"""The run directory of an image: its record run.json, its lock and its log, as for components."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from biro.models import SkyModel
from biro.observation.observation import Observation
from biro.run.directory import RunDirectory

MAY_CHANGE = ("n_iterations", "n_samples", "n_steps", "elbo")
"""Options that may differ where a run goes on."""
SAMPLER = "image, prior {}"
"""What run.json has in the place of a sampler."""


def image_run(
    folder: Path | None,
    observation: Observation,
    sky: SkyModel,
    seed: int,
    options: Mapping[str, Any],
    facts: Mapping[str, object],
) -> AbstractContextManager[RunDirectory | None]:
    """The run directory of an image, or a context of None where there is none.

    Parameters
    ----------
    folder : Path or None
    observation : Observation
    sky : SkyModel
        With one image that has a prior.
    seed : int
    options : mapping
        Of the engine.
    facts : mapping
        What else run.json records.

    Raises
    ------
    RunError
        Another process uses the directory, it has a run of other data, model or options, or other files.
    """
    if folder is None:
        return nullcontext()
    text = sky.to_toml()
    settings = {
        "sampler": SAMPLER.format(sky.image_priors[0].prior),
        "seed": seed,
        "options": dict(options),
        "data": observation.digest(),
        "model": hashlib.sha256(text.encode()).hexdigest(),
    }
    run = RunDirectory(folder, settings, may_change=MAY_CHANGE, facts=facts, model_toml=text)
    if run.record.get("finished") is not None:  # an image that had not converged goes on
        run.reopen(options)
    return run
