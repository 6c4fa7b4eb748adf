"""The rooms and the direction of imports between them."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("biro", "models", "rime_kernels")
NUMERIC = {"numpy", "numba"}
# What each room may import besides the standard library and itself.
ALLOWED = {
    "rime_kernels": NUMERIC | {"scipy"},  # for its FFTs
    "models": {"rime_kernels", "numpy", "scipy", "pydantic", "astropy"},
}
CASACORE = "biro/io/measurement_set/child/"
CUDA = {"rime_kernels/device/packages.py"}


def files(room: str) -> list[Path]:
    found = sorted((ROOT / room).rglob("*.py"))
    return [path for path in found if (ROOT / "biro" / "models") not in path.parents]


def dotted(path: Path) -> str:
    """The name that a file is imported by."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("biro", *parts) if parts[0] == "models" else parts).removesuffix(".__init__")


MODULES = frozenset(dotted(path) for room in ROOMS for path in files(room))


def imports(path: Path) -> Iterator[str]:
    """Absolute dotted names that a file imports, relative ones resolved.

    A package whose modules alone are named, as in `from biro.cli import fit`, is not counted itself.
    """
    package = dotted(path).split(".") if path.stem == "__init__" else dotted(path).split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            names = [f"{base}.{alias.name}" for alias in node.names]
            yield from names
            if not MODULES.issuperset(names):
                yield base


def imports_by_text(path: Path) -> Iterator[str]:
    """What a file imports by `import_module` of a text, or of one that begins so."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            texts = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
            yield from (text for text in texts if isinstance(text, str))


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


def order(room: str) -> list[str]:
    """Folders and modules of a room as docs/developers/architecture.md lists them, from the ground up."""
    page = (ROOT / "docs" / "developers" / "architecture.md").read_text()
    table = page.split(f"### Folders of {room}\n")[1].split("\n#")[0]
    return re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)


def arrows(room: str) -> dict[str, set[str]]:
    """Modules of a room, by dotted name within it, and the modules of the room that each imports."""
    root = ROOT / room
    # A package stands for its __init__.py; that of the room itself is the roof, and imports what it likes.
    names = {".".join(path.relative_to(root).with_suffix("").parts): path for path in files(room)}
    names = {name.removesuffix(".__init__"): path for name, path in names.items() if name != "__init__"}
    prefix = "biro.models." if room == "models" else f"{room}."
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        mine = found.setdefault(name, set())
        for imported in imports(path):
            inside = imported.removeprefix(prefix)
            if inside != imported and inside in names and inside != name:
                mine.add(inside)
    return found


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_folders_import_only_what_stands_before_them(room: str) -> None:
    above = order(room)
    upwards = sorted(
        f"{name} imports {imported}"
        for name, several in arrows(room).items()
        for imported in several
        if above.index(name.split(".")[0]) < above.index(imported.split(".")[0])
    )
    assert not upwards


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_no_modules_import_each_other_in_a_circle(room: str) -> None:
    left = arrows(room)
    while True:  # what imports nothing that is left cannot be part of a circle
        ground = {name for name, several in left.items() if not several & left.keys()}
        if not ground:
            break
        left = {name: several for name, several in left.items() if name not in ground}
    # Nor can what nothing that is left imports.
    while idle := left.keys() - {imported for several in left.values() for imported in several}:
        left = {name: several for name, several in left.items() if name not in idle}
    assert not sorted(left)


def test_biro_has_rooms_that_a_reader_can_remember() -> None:
    inside = (path for path in (ROOT / "biro").iterdir() if (path / "__init__.py").exists())
    rooms = [path.name for path in inside if not path.is_symlink()]  # biro/models is a link
    assert len(rooms) <= 20, sorted(rooms)


RANKS = (
    *("data_on_ranks", "link", "messages", "rank_tasks", "ranks"),
    *("service", "single_process", "start", "this_rank"),
)
"""Modules of biro/distributed that know ranks and shards."""


def test_one_folder_knows_which_process_has_which_data() -> None:
    """Others see blocks (`biro.distributed.blocks`), and processes as a group (`placement`, `turns`)."""
    inside = ("rime_kernels.engine.shard", *(f"biro.distributed.{name}." for name in RANKS))
    found = {
        str(path.relative_to(ROOT))
        for path in files("biro")
        for name in imports(path)
        if f"{name}.".startswith(inside) and "distributed" not in path.parts
    }
    # It passes the reasons of failures on, which are text.
    assert found == {"biro/many_fits/one_fit.py"}


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_folders_hold_what_a_reader_can_look_over(room: str) -> None:
    folders = {path.parent for path in files(room)}
    numbers = {str(folder.relative_to(ROOT)): len([*folder.glob("*.py")]) for folder in folders}
    # Of the files of a folder, __init__.py is not counted.
    assert {folder: n - 1 for folder, n in numbers.items() if n - 1 > 20} == {}


@pytest.mark.parametrize("page", ["architecture", "flow", "own_code"])
def test_pages_name_files_that_are_there(page: str) -> None:
    text = (ROOT / "docs" / "developers" / f"{page}.md").read_text()
    named = re.findall(r"`((?:biro|models|rime_kernels|tests|docs)/[\w/.]*)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_cuda_is_imported_in_one_module() -> None:
    found = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in files(room)
        for name in (*imports(path), *imports_by_text(path))
        if name.startswith(("numba.cuda", "cuda.bindings", "cupy"))
    }
    assert found == CUDA


def test_casacore_is_imported_only_where_a_child_process_runs() -> None:
    found = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in files(room)
        for name in imports(path)
        if top(name) == "casacore"
    }
    assert found
    assert all(path.startswith(CASACORE) for path in found)


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
