"""What lines of flags have flagged, as a table."""

from __future__ import annotations

from dataclasses import dataclass

from biro.display.formatting import Tabular
from biro.files.foreign_text import visible
from biro.io.flag_commands.commands import FlagCommand
from biro.io.flag_commands.new_flags import LineCount

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
        return (
            f"<SelectedFlags: {self.n_flagged} visibilities by {len(self.counts)} lines; print() shows the "
            "table>"
        )

    def cells(self) -> list[list[str]]:
        """Header and rows as text."""
        rows = [["line", "selected", "already flagged", "newly flagged"]]
        for count in self.counts:
            before = count.n_named - count.n_flagged
            rows.append([_shown(count.line), str(count.n_named), str(before), str(count.n_flagged)])
        return rows

    def notes(self) -> list[str]:
        """Lines that flag nothing, and where the flags are."""
        lines = [
            f"0 flagged by {_shown(count.line)}: {_why(count)}"
            for count in self.counts
            if not count.n_flagged
        ]
        total = f"{self.n_flagged} visibilities of {self.source} newly flagged"
        if self.version:
            lines.append(f"{total}. Previous flags saved as {self.version}.")
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


def _shown(line: FlagCommand) -> str:
    text = visible(line.text)
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return f"{line.number}: {text}" if line.number else text


def _why(count: LineCount) -> str:
    if count.why:
        return count.why
    return "all already flagged" if count.n_named else "no visibility matches"
