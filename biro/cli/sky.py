"""Read the sky that a command line names: a model file, a component list, or the best fit of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from biro.models import SkyModel


def read_sky_or_run(path: Path) -> tuple[SkyModel, dict[str, float]]:
    """A sky model, and values for its free parameters.

    Parameters
    ----------
    path : Path
        TOML model, WSClean/BBS or Tigger component list; or a run directory, whose sample of highest
        likelihood gives the values.

    Returns
    -------
    SkyModel
    dict of str to float
        Values by name of the parameter, in the model's own units; empty for a file.

    Raises
    ------
    InputError, ModelError
        It is none of these.
    """
    from biro.errors import InputError
    from biro.models import read_model, read_sky
    from biro.posterior.posterior import Posterior

    if not path.is_dir():
        return read_sky(path), {}
    if not (path / "posterior.nc").is_file():
        raise InputError(f"{path}: a folder, but not the run directory of a finished fit (no posterior.nc)")
    posterior = Posterior.load(path / "posterior.nc")
    best = dict(zip(posterior.names, posterior.best_fit.tolist(), strict=True))
    return read_model(path / "model.toml"), best
