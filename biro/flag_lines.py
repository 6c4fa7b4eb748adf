"""`biro.flag_selected`: data flagged by hand, line by line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from biro.data_set.flagged_cells import FlaggedCells, LineCount
from biro.errors import DataError, InputError
from biro.files.foreign_text import visible
from biro.flagging.foreign_lines import read_any, read_lines
from biro.flagging.lines import FlagLine
from biro.formatting import Tabular
from biro.measurement_set.flag_lines import flag_lines as flag_set_lines
from biro.measurement_set.storage import TIME_LIMIT
from biro.models.files.foreign import read_file
from biro.reading import format_of
from biro.uvfits.flag_lines import flag_lines as flag_uvfits_lines

LONGEST = 76
"""Characters of a line that the table shows."""


@dataclass(frozen=True, repr=False)
class SelectedFlags(Tabular):
    """What `biro.flag_selected` has flagged, line by line; `str` prints it, `to_dict` is for JSON.

    Attributes
    ----------
    source : str
        Path of the data.
    counts : tuple of LineCount
    version : str
        Name of the version that keeps the flags of a Measurement Set as they were; empty where nothing was
        written into one.
    output : str
        Path of the copy of a UVFITS file; empty where none was written.
    """

    source: str
    counts: tuple[LineCount, ...]
    version: str = ""
    output: str = ""

    @property
    def n_flagged(self) -> int:
        """Visibilities that are flagged now and were not before."""
        return sum(count.n_flagged for count in self.counts)

    def __repr__(self) -> str:
        return f"<SelectedFlags: {self.n_flagged} visibilities by {len(self.counts)} lines; print shows them>"

    def cells(self) -> list[list[str]]:
        """Header and rows as text."""
        rows = [["line", "flagged", "flagged before"]]
        for count in self.counts:
            before = count.n_named - count.n_flagged
            rows.append([_shown(count.line), str(count.n_flagged), str(before)])
        return rows

    def notes(self) -> list[str]:
        """Lines that flag nothing, and where the flags are."""
        lines = [
            f"0 flagged by {_shown(count.line)}: {_why(count)}"
            for count in self.counts
            if not count.n_flagged
        ]
        total = f"{self.n_flagged} visibilities of {self.source} are flagged"
        if self.version:
            lines.append(f"{total}. The flags before are kept as {self.version}.")
        elif self.output:
            lines.append(f"{total} in the copy {self.output}.")
        else:
            lines.append(f"{self.source}: nothing was written.")
        return lines

    def to_dict(self) -> dict[str, object]:
        """Counts and texts, for programs."""
        lines = [
            {
                "line": count.line.text,
                "number": count.line.number,
                "named": count.n_named,
                "flagged": count.n_flagged,
                "reason": "" if count.n_flagged else _why(count),
            }
            for count in self.counts
        ]
        return {
            "source": self.source,
            "written": bool(self.version or self.output),
            "version": self.version,
            "output": self.output,
            "flagged": self.n_flagged,
            "lines": lines,
        }


def _shown(line: FlagLine) -> str:
    text = visible(line.text)
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return f"{line.number}: {text}" if line.number else text


def _why(count: LineCount) -> str:
    if count.why:
        return count.why
    return "all of it was flagged before" if count.n_named else "it names no visibility of these data"


def flag_selected(
    path: str | os.PathLike[str],
    select: str | Sequence[str] = (),
    *,
    from_file: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    time_limit: float = TIME_LIMIT,
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
    lines = [read_any(text) for text in ([select] if isinstance(select, str) else select)]
    if from_file is not None:
        lines += _lines_of(from_file)
    if not lines:
        raise InputError("no selection is given; give select= (--select), or a file of lines")
    kind = format_of(path, time_limit)
    if kind == "Measurement Set":
        if output is not None:
            raise InputError(f"{path}: flags are written into a Measurement Set itself; leave the output out")
        found, version = flag_set_lines(path, lines, dry_run=dry_run, time_limit=time_limit, check=_check)
        return SelectedFlags(str(path), tuple(found.counts), version)
    if kind != "UVFITS":
        raise InputError(f"{path}: biro writes flags into Measurement Sets and copies of UVFITS files alone")
    if output is None and not dry_run:
        raise InputError(f"{path}: a UVFITS file is not changed; name the copy that is flagged (-o, output=)")
    if output is not None and not overwrite and Path(output).exists():
        raise InputError(f"{output}: exists; give another name for the copy, or overwrite it (--overwrite)")
    copy = None if dry_run else output
    found = flag_uvfits_lines(path, lines, copy, _check)
    return SelectedFlags(str(path), tuple(found.counts), output="" if copy is None else str(copy))


def _check(found: FlaggedCells) -> None:
    """Refuse selections, which are from no file, that name what the data do not have."""
    for count in found.counts:
        if count.why and not count.line.number:
            raise DataError(f"{count.line.text!r}: {count.why}")


def _lines_of(path: str | os.PathLike[str]) -> list[FlagLine]:
    try:
        text = read_file(path).decode("utf-8", errors="replace")
        return read_lines(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
