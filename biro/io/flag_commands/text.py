"""Lines of flags in the text forms of CASA's flagdata (mode "list") and of AIPS's UVFLG."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from biro.errors import InputError
from biro.io.flag_commands.aips import read_records, without_comment
from biro.io.flag_commands.commands import (
    AntennaPair,
    ChannelRange,
    FlagCommand,
    Range,
    TimeRange,
    read_line,
)
from biro.observation.selection import UVRange, to_mjd_seconds

DAY = 86400.0
_CASA = re.compile(r"""(?:^|\s)[A-Za-z_]+\s*=\s*['"]|^\s*mode\s*=""")
_PAIR = re.compile(r"""([A-Za-z_]+)\s*=\s*(?:'([^']*)'|"([^"]*)"|([^\s'"]+))(?:\s*,)?(?=\s|$)""")
_CLOCK = re.compile(
    r"(?:(\d{4})[/-](\d{1,2})[/-](\d{1,2})(?:[/-]|$))?(?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2}(?:\.\d*)?))?)?)?"
)
UNUSED = {"reason", "flagbackup", "action", "name"}
"""Keys of CASA that say nothing about which data are flagged."""


def read_lines(text: str) -> list[FlagCommand]:
    """The lines of a file: of biro's own form, of CASA's flagdata, or, where one ends with "/", of AIPS.

    Parameters
    ----------
    text : str
        Empty lines, and what follows # at the beginning of a line, are passed over.

    Raises
    ------
    InputError
        A line that is not understood; names its number.
    """
    lines = [line.strip() for line in text.splitlines()]
    if any(without_comment(line).endswith("/") for line in lines):
        return read_records(text)
    found = []
    for number, line in enumerate(lines, start=1):
        if line and not line.startswith("#"):
            try:
                found.append(replace(read_any(line), number=number))
            except InputError as error:
                raise InputError(f"line {number}: {error}") from None
    if not found:
        raise InputError("has no line that names data")
    return found


def read_any(line: str) -> FlagCommand:
    """One line of biro's own form, or of CASA's, which has its values in quotes."""
    return read_casa(line) if _CASA.search(line) else read_line(line)


def read_casa(text: str) -> FlagCommand:
    """A command of CASA's flagdata: key='value' key='value' ..., of mode "manual".

    The text forms are those of CASA's documentation ("Visibility Data Selection", task flagdata): ends of
    ranges are included; antenna = "A" takes the autocorrelations of A along, "A&B" does not.

    Raises
    ------
    InputError
        A mode or a key that is not supported, or a value that is not understood.
    """
    values = _casa_values(text)
    line = FlagCommand(text)
    for key, value in values.items():
        if key in UNUSED or not value:
            continue
        if key == "mode":
            if value != "manual":
                raise InputError(f"{text!r}: mode {value!r} is not supported, only mode='manual'")
        elif key == "autocorr":
            if value.lower() == "true":
                line = replace(line, pairs=(*line.pairs, AntennaPair(autos="only")))
        elif key == "antenna":
            line = replace(line, pairs=(*line.pairs, *_casa_pairs(value)))
        elif key == "field":
            line = replace(line, fields=tuple(_listed(value)))
        elif key == "scan":
            line = replace(line, scans=tuple(_casa_range(part, "scan") for part in _listed(value)))
        elif key == "spw":
            line = replace(line, windows=tuple(_casa_windows(value)))
        elif key == "correlation":
            line = replace(line, correlations=tuple(part.upper() for part in _listed(value)))
        elif key == "uvrange":
            line = replace(line, uv_ranges=tuple(_casa_lengths(part) for part in _listed(value)))
        elif key == "timerange":
            line = replace(line, spans=tuple(_casa_span(part) for part in _listed(value)))
        else:
            known = "mode, antenna, timerange, spw, correlation, uvrange, scan, field, autocorr, reason"
            raise InputError(f"{text!r}: the key {key!r} is not supported; supported are {known}")
    return line


def _casa_values(text: str) -> Mapping[str, str]:
    values: dict[str, str] = {}
    at = 0
    for match in _PAIR.finditer(text):
        if text[at : match.start()].strip():
            break
        at = match.end()
        key = match[1].lower()
        if key in values:
            raise InputError(f"{text!r}: {key} is given twice")
        values[key] = next(group for group in match.groups()[1:] if group is not None).strip()
    if text[at:].strip():
        raise InputError(f"{text!r}: {text[at:].strip()[:40]!r} is not understood; write key='value'")
    return values


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _casa_pairs(value: str) -> Iterator[AntennaPair]:
    """Baselines: "A,B" of antennas, "A&B" of pairs, "A&" among these, "&&" with and "&&&" only autos."""
    for part in value.split(";"):
        item = part.strip()
        if not item:
            continue
        is_left_out = item.startswith("!")
        first, ands, second = re.fullmatch(r"([^&]*)(&*)([^&]*)", item.removeprefix("!")).groups()  # type: ignore[union-attr]
        if len(ands) > 3 or (second and not ands):
            raise InputError(f"antenna {value!r} is not understood; write as 'ea01&ea02;ea05'")
        autos = {0: "with", 1: "without", 2: "with", 3: "only"}[len(ands)]
        ends = _antennas(first), _antennas(second)
        if ands and not ends[1]:
            ends = ends[0], ends[0]  # "A,B&": among these alone
        yield AntennaPair(ends[0], ends[1], autos, is_left_out)  # type: ignore[arg-type]


def _antennas(text: str) -> tuple[str, ...]:
    return tuple(item for item in _listed(text) if item != "*") if "*" not in _listed(text) else ("*",)


def _casa_range(part: str, what: str) -> Range:
    match = re.fullmatch(r"\s*(?:([<>])\s*(\d+)|(\d+)(?:\s*~\s*(\d+))?)\s*", part)
    if match is None:
        raise InputError(f"{what} {part!r} is not understood; write as '3', '3~5', '<3' or '>3'")
    if match[1] == "<":
        return -np.inf, int(match[2]) - 1
    if match[1] == ">":
        return int(match[2]) + 1, np.inf
    return int(match[3]), int(match[4] or match[3])


def _casa_windows(value: str) -> Iterator[ChannelRange]:
    """Windows and their channels: "0:3~10;15,2~3" is channels 3 to 10 and 15 of 0, and all of 2 and 3."""
    for part in _listed(value):
        names, colon, channels = part.partition(":")
        names = names.strip()
        spws = None if names in ("", "*") else (names,)
        yield ChannelRange(spws, tuple(map(_casa_channels, channels.split(";"))) if colon else None)


def _casa_channels(text: str) -> slice:
    match = re.fullmatch(r"\s*(?:([<>])\s*(\d+)|(\d+)(?:\s*~\s*(\d+))?(?:\^(\d+))?)\s*", text)
    if match is None:
        raise InputError(
            f"channels {text!r} of spw are not understood; write numbers as '3~10;15' or '0~63^2'"
        )
    if match[1] == "<":
        return slice(0, int(match[2]))
    if match[1] == ">":
        return slice(int(match[2]) + 1, None)
    return slice(int(match[3]), int(match[4] or match[3]) + 1, max(1, int(match[5] or 1)))


def _casa_lengths(part: str) -> UVRange:
    """A range of lengths: "100~500m", ">1klambda", with the unit behind the last number; metres without."""
    match = re.fullmatch(
        r"\s*(?:([<>])\s*([\d.eE+-]+?)|([\d.eE+-]+?)\s*([A-Za-z]*)\s*~\s*([\d.eE+-]+?))\s*([A-Za-z]*)\s*",
        part,
    )
    if match is None:
        raise InputError(f"uvrange {part!r} is not understood; write as '0~100klambda' or '>500m'")
    unit = match[6].replace("kilo", "k").replace("mega", "M").replace("giga", "G")
    if match[1]:
        end = f"{match[2]} {unit}"
        return UVRange.of(f"..{end}" if match[1] == "<" else f"{end}..")
    return UVRange.of(f"{match[3]} {match[4] or unit}..{match[5]} {unit}")


def _casa_span(part: str) -> TimeRange:
    """A range of times: "T0~T1", "T0+dT", "<T", ">T", "T"; without a date, of the first day of the data."""
    text = part.strip()
    if text[:1] in "<>":
        moment, since = _casa_time(text[1:], text)
        return TimeRange(-np.inf, moment, since) if text[0] == "<" else TimeRange(moment, np.inf, since)  # type: ignore[arg-type]
    start, tilde, stop = text.partition("~")
    first, plus, length = start.partition("+")
    low, since = _casa_time(first, text)
    high = low
    if plus and not tilde:
        high = low + _casa_time(length, text)[0]
    elif tilde:
        high, of_end = _casa_time(stop, text)
        if since == "mjd" and of_end != "mjd":  # the date of the start
            high += np.floor(low / DAY) * DAY
    if high < low:
        raise InputError(f"timerange {text!r}: the start is after the stop")
    return TimeRange(low, high, since)  # type: ignore[arg-type]


def _casa_time(text: str, whole: str) -> tuple[float, str]:
    match = _CLOCK.fullmatch(text.strip())
    if match is None or not text.strip():
        raise InputError(f"timerange {whole!r} is not understood; write as '2017/04/10/00:30:00~00:45:00'")
    year, month, day, hour, minute, second = match.groups()
    clock = 3600.0 * float(hour or 0) + 60.0 * float(minute or 0) + float(second or 0)
    if year is None:
        return clock, "first day"
    return to_mjd_seconds(f"{year}-{int(month):02d}-{int(day):02d}") + clock, "mjd"
