"""`biro.flag`: interference in a Measurement Set, found in its data or in what a sky leaves of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from biro.data_set.models_of_rows import all_gathered
from biro.flagging.report import FlagReport
from biro.flagging.strategy import StrategyLike
from biro.measurement_set.flags import FlagOptions, flag_set
from biro.models import SkyModel
from biro.observation.observation import Observation
from biro.simulation.prediction import predict
from rime_kernels.device import Backend
from rime_kernels.engine.device_threads import Devices
from rime_kernels.physics.envelope import GaussianFrame


def flag(
    path: str | os.PathLike[str],
    strategy: StrategyLike = "meerkat",
    *,
    dry_run: bool = False,
    sky: SkyModel | None = None,
    values: Mapping[str, float] | None = None,
    gaussian_frame: GaussianFrame = "tangent",
    backend: Backend = "auto",
    devices: Devices | None = None,
    **options: Unpack[FlagOptions],
) -> FlagReport:
    """Find interference in a Measurement Set, and write it into FLAG.

    Autocorrelations are looked at, too. The flags as they were are kept first, as a version of CASA's
    flagmanager beside the set (PATH.flagversions), which `biro.undo_flags` brings back. Flags are only ever
    added: FLAG of what was found, and FLAG_ROW where all of a row is flagged now. While they are written,
    FLAG has the keyword BIRO_COMPLETE = False; it is removed after all were written, flushed, read back and
    found equal. FLAG_CMD and HISTORY say what was done; nothing else of the set changes.

    Parameters
    ----------
    path : path of the Measurement Set
    strategy : str, path or Strategy
        "meerkat", "wsrt", "long-baseline", or a TOML file, see `biro.read_strategy`.
    dry_run : bool
        Find, and write nothing.
    sky : SkyModel, optional
        Look at the data less this sky: fringes and steep spectra that it has are no interference then. Data
        must be calibrated, or the model must have their gains.
    values : mapping name -> float, optional
        Values of the free parameters of the sky, in the model's own units, by the names that fits give them.
    gaussian_frame : "tangent" or "uv"
        In which plane elliptical Gaussians of the sky lie (physics: section 5).
    backend : "auto", "cpu" or "cuda"
        Where the sky is predicted, and interference looked for.
    devices : "all", int or sequence of int, optional
        GPUs that share the baselines: all, the first so many, or those of these numbers. Default: one. The
        flags are the same for any number of them.
    **options
        column, weight_column, fields, spws, scans, antennas, time_range, uv_range, channels, correlations and
        time_limit, as of `biro.read_ms`.

    Returns
    -------
    FlagReport

    Raises
    ------
    MeasurementSetError
        As `biro.read_ms` raises it; or the set is read-only or locked, has no FLAG column, its disk has no
        room for the version, or flags do not read back as they were written.
    DataError
        A selection that matches nothing.
    InputError
        An option or a strategy that is not understood, or what names no devices.
    BackendError
        `backend="cuda"` without a working GPU; devices that are not there, or of different kinds.

    Examples
    --------
    >>> print(flag("obs.ms", "wsrt", dry_run=True))
    """
    if sky is None:
        return flag_set(path, strategy, dry_run=dry_run, backend=backend, devices=devices, **options)

    def models(observation: Observation) -> Iterator[NDArray[np.complexfloating]]:
        predicted = predict(observation, sky, values=values, gaussian_frame=gaussian_frame, backend=backend)
        return all_gathered(observation, predicted)

    return flag_set(
        path, strategy, dry_run=dry_run, models=models, backend=backend, devices=devices, **options
    )
