"""Temporary: the CPU engine behind the calls that `Rime` makes."""

from rime_kernels._engine_cpu import Engine as _Loops
from rime_kernels._inputs import Output, beam_codes, inputs


class Engine:
    def __init__(self, fixed, table, *, single, factored, frame, memory_limit):  # type: ignore[no-untyped-def]
        self._loops, self._frame = _Loops(fixed, table, single=single, factored=factored), frame

    def run(self, sources, output):  # type: ignore[no-untyped-def]
        return self._loops.run(inputs(sources, self._frame), beam_codes(sources), sources.polarised, output)

    def start_chi2(self, sources):  # type: ignore[no-untyped-def]
        chi2 = self.run(sources, Output.CHI2)
        return lambda: chi2

    def plan(self, sources):  # type: ignore[no-untyped-def]
        return ""
