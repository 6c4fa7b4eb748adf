"""The rooms and the direction of imports between them."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NUMERIC = {"numpy", "numba"}
# What each room may import besides the standard library and itself.
ALLOWED = {
    "rime_kernels": NUMERIC | {"scipy"},  # for its FFTs
    "models": {"rime_kernels", "numpy", "scipy", "pydantic", "astropy"},
}
CASACORE = {f"biro/measurement_set/child/{name}.py" for name in ("__main__", "read", "write", "create")}
CUDA = {"rime_kernels/device.py"}


def files(room: str) -> list[Path]:
    found = sorted((ROOT / room).rglob("*.py"))
    return [path for path in found if (ROOT / "biro" / "models") not in path.parents]


def imports(path: Path) -> Iterator[str]:
    """Absolute dotted names that a file imports, relative ones resolved."""
    package = ["biro" if path.parts[len(ROOT.parts)] == "models" else "", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(p for p in package[: len(package) - node.level + 1] if p) if node.level else ""
            yield ".".join(part for part in (base, node.module) if part)
            yield from (".".join(p for p in (base, node.module, alias.name) if p) for alias in node.names)


def top(name: str) -> str:
    return "models" if name.startswith("biro.models") else name.split(".")[0]


@pytest.mark.parametrize("room", ["rime_kernels", "models"])
def test_a_lower_room_imports_only_what_lies_below(room: str) -> None:
    for path in files(room):
        for name in imports(path):
            outside = top(name)
            if outside != room and outside not in sys.stdlib_module_names and outside != "__future__":
                allowed = ALLOWED[room] | ({"cupy"} if str(path.relative_to(ROOT)) in CUDA else set())
                assert outside in allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_cuda_is_imported_in_one_module() -> None:
    found = {
        str(path.relative_to(ROOT))
        for room in ("rime_kernels", "models", "biro")
        for path in files(room)
        for name in imports(path)
        if name.startswith(("numba.cuda", "cupy"))
    }
    assert found <= CUDA


def test_casacore_is_imported_only_where_a_child_process_runs() -> None:
    found = {
        str(path.relative_to(ROOT))
        for room in ("rime_kernels", "models", "biro")
        for path in files(room)
        for name in imports(path)
        if top(name) == "casacore"
    }
    assert found <= CASACORE


def test_importing_biro_loads_nothing_heavy() -> None:
    heavy = {
        "numba",
        "scipy",
        "astropy",
        "matplotlib",
        "casacore",
        "emcee",
        "dynesty",
        "pydantic",
        "h5py",
        "cupy",
    }
    code = f"import sys, biro; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
