"""Names for types that mypy cannot check, each with the reason."""

from __future__ import annotations

from typing import Any

# An object of a JSON file: what its values are differs from benchmark to benchmark.
Line = dict[str, Any]
# Keyword arguments of a call, whose types differ from one to the next.
Options = dict[str, Any]
# A value within compiled code, or a compiled function, whose type Numba works out; what is passed through.
Value = Any
# A kernel, an event or a stream: Numba's CUDA has no types, and its simulator has others.
OnDevice = Any
