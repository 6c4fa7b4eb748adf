"""`biro.flag` and `biro.flag_selected`: interference that is found, or data that are named, are flagged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from biro.display.arguments import PATH, takes
from biro.display.formatting import given_text
from biro.display.progress import doing, showing
from biro.distributed.remote_data import whole
from biro.errors import DataError, InputError
from biro.flagging.report import FlagReport
from biro.flagging.strategy import StrategyLike
from biro.io.flag_commands.commands import FlagCommand
from biro.io.flag_commands.new_flags import FlaggedCells
from biro.io.flag_commands.report import SelectedFlags
from biro.io.flag_commands.text import read_any, read_lines
from biro.io.measurement_set.flag_commands import flag_lines
from biro.io.measurement_set.flags import FlagOptions, flag_set
from biro.io.measurement_set.storage import TIME_LIMIT
from biro.io.reading import format_of
from biro.io.uvfits.flag_commands import flag_lines as flag_lines_of_uvfits
from biro.models import SkyModel
from biro.models.files.foreign import read_file
from biro.observation.observation import Observation
from biro.simulation.prediction import predict
from rime_kernels.choices import Backend, GaussianFrame
from rime_kernels.engine.device_threads import Devices


@takes(path=PATH)
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
    progress: bool = True,
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
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.
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
    kind = format_of(path, options.get("time_limit", TIME_LIMIT))
    if kind != "Measurement Set":
        raise InputError(
            f"{path}: {kind if kind == 'UVFITS' else 'no Measurement Set'}. biro flag writes what it finds "
            "into Measurement Sets alone. Leave interference out while the data are read "
            "(`--flagger meerkat`, flagger=), or flag what you name in a copy of a UVFITS file "
            "(`biro flag OBS --select LINE -o COPY`)"
        )

    def models(observation: Observation) -> Iterator[NDArray[np.complexfloating]]:
        predicted = predict(observation, sky, values=values, gaussian_frame=gaussian_frame, backend=backend)
        return map(whole, predicted)

    with showing(progress), doing("looking for interference"):
        return flag_set(
            path,
            strategy,
            dry_run=dry_run,
            models=None if sky is None else models,
            backend=backend,
            devices=devices,
            **options,
        )


@takes(path=PATH)
def flag_selected(
    path: str | os.PathLike[str],
    select: str | Sequence[str] = (),
    *,
    from_file: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    time_limit: float = TIME_LIMIT,
    progress: bool = True,
) -> SelectedFlags:
    """Flag visibilities that are named, in a Measurement Set or in a copy of a UVFITS file.

    The flags of a Measurement Set as they were are kept as a version beside it, which `biro.undo_flags`
    brings back (see `biro.flag`). A UVFITS file is not changed: the weights of what is flagged are negative
    in the copy. Autocorrelations are flagged with the others.

    Parameters
    ----------
    path : path of the Measurement Set or UVFITS file
    select : str or sequence of str
        Each as "antenna=FD, time=2017-04-10T00:30..2017-04-10T00:45, channels=3,4", with the names and text
        forms of the selection of `biro.read` (fields, spws, scans, antennas, time_range, uv_range, channels,
        correlations); `antennas` names all baselines of an antenna, `baselines` pairs as FD-HN.
    from_file : path, optional
        A text file of such lines, of commands of CASA's flagdata (mode="manual"), or of records of AIPS's
        UVFLG.
    output : path
        Where the copy of a UVFITS file goes.
    overwrite : bool
        Replace the copy where it exists.
    dry_run : bool
        Count, and write nothing.
    time_limit : float, s
        How long to wait for a locked Measurement Set.
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.

    Returns
    -------
    SelectedFlags

    Raises
    ------
    InputError
        A line that is not understood or has a key that is not supported; no line; an output where the data
        are a Measurement Set, or none where they are a UVFITS file.
    DataError
        `select` names an antenna, a field, a spectral window, channels or a correlation that the data do not
        have; such a line of a file flags nothing, and the result says so.
    MeasurementSetError
        As `biro.flag` raises it.

    Examples
    --------
    >>> print(flag_selected("obs.ms", "antenna=FD, time=2017-04-10T00:30..2017-04-10T00:45"))
    """
    given = [select] if isinstance(select, str) else select
    if not (isinstance(given, list | tuple) and all(isinstance(text, str) for text in given)):
        raise InputError(f"select must be a text, or a list of texts, got {given_text(select)}")
    lines = [read_any(text) for text in given]
    if from_file is not None:
        lines += _lines_of(from_file)
    if not lines:
        raise InputError("nothing to flag; give select= (--select) or a file of flag commands")
    kind = format_of(path, time_limit)
    if kind == "Measurement Set":
        if output is not None:
            raise InputError(
                f"{path}: biro writes flags into the Measurement Set itself; remove -o (output= in Python)"
            )
        with doing("flagging", show=progress):
            found, version = flag_lines(path, lines, dry_run=dry_run, time_limit=time_limit, check=_check)
        return SelectedFlags(str(path), tuple(found.counts), version)
    if kind != "UVFITS":
        raise InputError(
            f"{path}: biro can write flags only into Measurement Sets and copies of UVFITS files"
        )
    if output is None and not dry_run:
        raise InputError(f"{path}: biro never changes a UVFITS file; name a copy for the flags (-o, output=)")
    if output is not None and not overwrite and Path(output).exists():
        raise InputError(f"{output}: exists; give another name for the copy, or overwrite it (--overwrite)")
    copy = None if dry_run else output
    with doing("flagging", show=progress):
        found = flag_lines_of_uvfits(path, lines, copy, _check)
    return SelectedFlags(str(path), tuple(found.counts), output="" if copy is None else str(copy))


def _check(found: FlaggedCells) -> None:
    """Refuse selections, which are from no file, that name what the data do not have."""
    for count in found.counts:
        if count.why and not count.line.number:
            raise DataError(f"{count.line.text!r}: {count.why}")


def _lines_of(path: str | os.PathLike[str]) -> list[FlagCommand]:
    try:
        text = read_file(path).decode("utf-8", errors="replace")
        return read_lines(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
