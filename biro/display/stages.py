"""How long each stage of a work takes, and at what rate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from biro.display.formatting import Printed


class Stages(Printed):
    """Seconds that were spent in each stage and how much was done there, in the order of their beginning."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._amount: dict[str, float] = {}
        self._unit: dict[str, str] = {}

    def add(self, name: str, seconds: float, amount: float = 0.0, unit: str = "visibilities") -> None:
        """Add to a stage; `amount` is what it did in this time, in `unit`."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        self._amount[name] = self._amount.get(name, 0.0) + amount
        self._unit[name] = unit

    @contextmanager
    def timed(self, name: str, amount: float = 0.0, unit: str = "visibilities") -> Iterator[None]:
        """Add the time that the block takes."""
        began = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - began, amount, unit)

    def include(self, other: Stages) -> None:
        """Add all stages of another work."""
        for name, seconds in other._seconds.items():
            self.add(name, seconds, other._amount[name], other._unit[name])

    def to_dict(self) -> dict[str, dict[str, object]]:
        """For each stage: seconds, amount, unit, and amount per second (None where nothing was counted)."""
        return {
            name: {
                "seconds": seconds,
                "amount": self._amount[name],
                "unit": self._unit[name],
                "per_second": self._rate(name),
            }
            for name, seconds in self._seconds.items()
        }

    def __str__(self) -> str:
        return "; ".join(f"{name} {self._text(name)}" for name in self._seconds)

    def _text(self, name: str) -> str:
        rate = self._rate(name)
        text = f"{self._seconds[name]:.3g} s"
        return text if rate is None else f"{text} ({rate:.3g} {self._unit[name]}/s)"

    def _rate(self, name: str) -> float | None:
        amount, seconds = self._amount[name], self._seconds[name]
        return amount / seconds if amount and seconds else None
