"""Records of flags in the text form of AIPS's UVFLG (INTEXT), as stations of VLBI and SCHED write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from biro.errors import InputError
from biro.io.flag_commands.commands import AntennaPair, ChannelRange, FlagCommand, TimeRange

Value = list[str]
KNOWN = (
    "ANTENNAS",
    "BASELINE",
    "ANT_NAME",
    "TIMERANG",
    "BIF",
    "EIF",
    "BCHAN",
    "ECHAN",
    "STOKES",
    "SOURCES",
    "SUBARRAY",
    "FREQID",
    "REASON",
    "OPCODE",
    "DTIMRANG",
    "TIMEOFF",
)
LASTING = ("OPCODE", "DTIMRANG", "TIMEOFF")
"""Keywords that hold for all records behind them."""
STOKES: dict[str, tuple[str, ...] | None] = {
    "": None,
    "FULL": None,
    "IQUV": None,
    "HALF": ("parallel",),
    "RRLL": ("RR", "LL"),
    "XXYY": ("XX", "YY"),
    "I": ("parallel",),
    "CROS": ("cross",),
    "RLLR": ("RL", "LR"),
    **{name: (name,) for name in ("RR", "LL", "RL", "LR", "XX", "YY", "XY", "YX")},
}
"""Correlations by the value of STOKES."""
_TOKEN = re.compile(r"""\s*(?:([A-Za-z_]\w*)\s*=|'([^']*)'|"([^"]*)"|([^\s,'"/=]+)|(/)|,)""")

_COMMENT = re.compile(r"""'[^']*'|"[^"]*"|!.*""")


@dataclass(frozen=True)
class _Record:
    values: Mapping[str, Value]
    text: str
    number: int


def read_records(text: str) -> list[FlagCommand]:
    """The records of a file: keyword = value, ... up to "/"; what follows "!" is a comment.

    Keywords are those of UVFLG: ANTENNAS and BASELINE or ANT_NAME, TIMERANG (day, hour, minute, second of the
    start and of the stop), BIF, EIF, BCHAN, ECHAN, STOKES, SOURCES, REASON; OPCODE = 'FLAG', DTIMRANG (what
    each range is wider by at its ends, s) and TIMEOFF (what is added to both, s) hold for all records
    behind them.

    Raises
    ------
    InputError
        A keyword that is not supported, or a value that is not understood; names the line.
    """
    lasting: dict[str, Value] = {}
    lines = []
    for record in _records(text):
        lasting |= {key: value for key, value in record.values.items() if key in LASTING}
        try:
            lines.append(_line(record, {**lasting, **record.values}))
        except InputError as error:
            raise InputError(f"line {record.number}: {record.text!r}: {error}") from None
    if not lines:
        raise InputError("has no record that ends with /")
    return lines


def without_comment(line: str) -> str:
    """A line without what follows "!" outside of quotes."""
    return _COMMENT.sub(lambda match: "" if match[0].startswith("!") else match[0], line).strip()


def _records(text: str) -> Iterator[_Record]:
    values: dict[str, Value] = {}
    words: list[str] = []
    key, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = without_comment(raw)
        if line.startswith(("#", "*", ";")):
            continue
        at = 0
        while at < len(line):
            match = _TOKEN.match(line, at)
            if match is None:
                raise InputError(
                    f"line {number}: {line[at:][:40]!r} is not understood; write KEYWORD = value"
                )
            at = match.end()
            name, quoted, doubly, plain, end = match.groups()
            if name:
                key = name.upper()
                if not first and key not in LASTING:  # headers stand before a record, without "/"
                    words, first = [], number
                if key not in KNOWN:
                    raise InputError(
                        f"line {number}: the keyword {name} is not supported; supported are "
                        f"{', '.join(KNOWN)}"
                    )
                values[key] = []
            words.append(match[0].strip())
            if end:
                yield _Record(values, " ".join(words).replace(" ,", ",").replace("= ", "="), first)
                values, words, key, first = {}, [], "", 0
            elif not name and match[0].strip() != ",":
                if not key:
                    raise InputError(f"line {number}: {match[0].strip()!r} belongs to no keyword")
                values[key].append(next(part for part in (quoted, doubly, plain) if part is not None))
    if set(values) - set(LASTING):
        raise InputError(f"line {first}: the last record does not end with /")


def _line(record: _Record, values: Mapping[str, Value]) -> FlagCommand:
    opcode = _word(values, "OPCODE").upper()
    if opcode not in ("", "FLAG"):
        raise InputError(f"OPCODE = {opcode!r} is not supported, only 'FLAG'")
    if _numbers(values, "SUBARRAY", [0])[0] not in (0, 1) or _numbers(values, "FREQID", [-1])[0] > 1:
        raise InputError("SUBARRAY and FREQID above 1 are not supported")
    stokes = _word(values, "STOKES").upper()
    names = [name for name in values.get("SOURCES", []) if name.strip()]
    return FlagCommand(
        record.text,
        pairs=tuple(_pairs(values)),
        fields=tuple(f"!{name[1:]}" if name.startswith("-") else name for name in names) or None,
        spans=_span(values),
        windows=_windows(values),
        correlations=_correlations(stokes),
        number=record.number,
    )


def _correlations(stokes: str) -> tuple[str, ...] | None:
    if stokes in STOKES:
        return STOKES[stokes]
    if re.fullmatch("[01]{4}", stokes) and "1" in stokes:  # RR, LL, RL, LR, as in the table FG
        kinds = zip(stokes, (("RR", "XX"), ("LL", "YY"), ("RL", "XY"), ("LR", "YX")), strict=True)
        return tuple(name for bit, both in kinds if bit == "1" for name in both)
    raise InputError(f"STOKES = {stokes!r} is not supported; supported are {', '.join(filter(None, STOKES))}")


def _word(values: Mapping[str, Value], key: str) -> str:
    return (values.get(key) or [""])[0].strip()


def _numbers(values: Mapping[str, Value], key: str, default: list[float]) -> list[float]:
    found = values.get(key) or []
    try:
        return [float(item) for item in found] or default
    except ValueError:
        raise InputError(f"{key} = {', '.join(found)}: expected numbers") from None


def _pairs(values: Mapping[str, Value]) -> Iterator[AntennaPair]:
    """Baselines of stations, which count from 1; a negative number leaves all named ones out."""
    if name := _word(values, "ANT_NAME"):
        yield AntennaPair((name,))
        return
    first, second = ([int(x) for x in _numbers(values, key, []) if x] for key in ("ANTENNAS", "BASELINE"))
    ends = tuple(f"station {abs(x)}" for x in first), tuple(f"station {abs(x)}" for x in second)
    if first or second:
        yield AntennaPair(*ends, is_left_out=min([*first, *second]) < 0)


def _span(values: Mapping[str, Value]) -> tuple[TimeRange, ...] | None:
    parts = _numbers(values, "TIMERANG", [])
    if not any(parts):
        return None
    if len(parts) != 8:
        raise InputError(f"TIMERANG has {len(parts)} numbers; expected 8: day, hour, minute, second twice")
    units = np.array([86400.0, 3600.0, 60.0, 1.0])
    start, stop = units @ np.array(parts[:4]), units @ np.array(parts[4:])
    wider, later = (_numbers(values, key, [0.0])[0] for key in ("DTIMRANG", "TIMEOFF"))
    low = float(start - wider + later) if any(parts[:4]) else -np.inf
    high = float(stop + wider + later) if any(parts[4:]) else np.inf
    if low > high:
        raise InputError("TIMERANG: the start is after the stop")
    return (TimeRange(low, high, "aips"),)


def _windows(values: Mapping[str, Value]) -> tuple[ChannelRange, ...] | None:
    first_if, last_if, first, last = (
        int(_numbers(values, key, [0.0])[0]) for key in ("BIF", "EIF", "BCHAN", "ECHAN")
    )
    if max(first_if, last_if, first, last) <= 0:
        return None
    spws = (f"{max(first_if, 1) - 1}~{last_if - 1 if last_if > 0 else 9999}",)
    chosen = max(first_if, last_if) > 0
    channels = (slice(max(first, 1) - 1, last if last > 0 else None),) if max(first, last) > 0 else None
    return (ChannelRange(spws if chosen else None, channels),)
