"""Machine code on disk: each function has its own, and one that has changed is not taken."""

import functools
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba import float32, float64, njit, prange
from numba.core import caching

from rime_kernels import device
from rime_kernels.compile import cache as machine_code
from rime_kernels.compile import jit, late, sources
from rime_kernels.compile.identity import UnknownError, identity
from rime_kernels.cpu import forward
from rime_kernels.cuda.kernels.tiles import tensor_cores
from rime_kernels.physics import phase


class Shape(NamedTuple):
    side: int
    chunk: int


def make(*constants: Any) -> Callable[[float], Any]:
    held = constants

    def function(x: float) -> Any:
        return held, x

    return function


def make_outer(inner: Any) -> Callable[[float], Any]:
    def function(x: float) -> Any:
        return inner(x)

    return function


class Origin(NamedTuple):
    """An argument whose class belongs, so it seems, to a module of the package."""

    x: float


Origin.__module__ = phase.__name__


class Object:
    """Something without a name of its own."""


DIFFERENT = [
    *((1,), (2,), (1.0,), (True,), ("1",), (None,), (1, 2), ((1, 2),), (Shape(1, 2),), (1j,)),
    *((np.float32,), (np.float64,), (float32,), (float64,), (np.float32(1),), (np.float64(1),)),
    *((np.dtype("f4"),), (functools,), (make(1),), (make(2),), (njit(make(3)),)),
    *((make_outer(make(1)),), (make_outer(njit(make(4))),)),
]


def test_functions_of_different_constants_differ() -> None:
    found = [identity(make(*constants)) for constants in DIFFERENT]
    assert len({repr(each) for each in found}) == len(found)


def test_functions_of_the_same_constants_are_the_same() -> None:
    assert identity(make_outer(njit(make(Shape(3, 8))))) == identity(make_outer(njit(make(Shape(3, 8)))))
    assert identity(make(1)) != identity(make_outer(1))


def test_defaults_tell_functions_apart() -> None:
    def with_default(k: int) -> Callable[..., int]:
        return lambda x, n=k: x + n

    assert identity(with_default(1)) != identity(with_default(2))


def test_functions_of_one_name_in_two_branches_differ() -> None:
    def branch(double: bool) -> Callable[[int], int]:
        if double:

            def function(x: int) -> int:
                return 2 * x
        else:

            def function(x: int) -> int:
                return x

        return function

    assert branch(True).__qualname__ == branch(False).__qualname__
    assert identity(branch(True)) != identity(branch(False))


def test_what_has_no_name_is_said() -> None:
    with pytest.raises(UnknownError, match=r"Object object .* cannot be identified"):
        identity(make_outer(make(1, Object())))


def test_identities_are_those_of_other_processes() -> None:
    """Whatever the seed of hashes and the order in which functions are made."""
    code = """
        from rime_kernels.cpu import gradient
        from rime_kernels.compile import identity as _identity
        for single in ORDER:
            for n in (1, 4):
                print(_identity.short(_identity.identity(gradient.make_gradients(single, n, 1))))
    """

    def names(order: str, seed: str) -> list[str]:
        text = textwrap.dedent(code).replace("ORDER", order)
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, env=environment, check=True
        )
        return sorted(done.stdout.split())

    first = names("(True, False)", "1")
    assert len(set(first)) == 4
    assert names("(False, True)", "2") == first


# ---- loops on the CPU, whose machine code is kept in a folder of the test


def make_loop(factor: int) -> Any:
    @jit.loop
    def times(n: int) -> int:
        total = 0
        for _ in prange(n):
            total += factor
        return total

    return times


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where machine code is kept in one test."""
    from numba import config

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def hits(loop: Any) -> int:
    """How often the loop was found on disk."""
    return sum(loop.stats.cache_hits.values())


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def written(folder: Path) -> list[tuple[Path, int, int]]:
    """The files, and which writing of each: whoever compiles writes another file in its place."""
    return [(path, path.stat().st_ino, path.stat().st_mtime_ns) for path in files(folder)]


def test_each_thing_compiled_has_its_own_file(folder: Path) -> None:
    """Two processes that save at once cannot put one in place of another: they share no file."""
    assert [make_loop(k)(7) for k in (2, 3)] == [14, 21]
    assert len(files(folder)) == 2
    assert make_loop(2)(np.int32(7)) == 14
    assert len(files(folder)) == 3
    again = make_loop(3)
    assert again(7) == 21
    assert hits(again) == 1
    assert len(files(folder)) == 3


def test_functions_of_arrays_are_kept_too(folder: Path) -> None:
    def double(x: float) -> float:
        return 2.0 * x

    assert list(jit.elementwise(njit(double))(np.ones(3))) == [2.0, 2.0, 2.0]
    before = written(folder)
    assert len(before) == 1
    assert list(jit.elementwise(njit(double))(np.ones(3))) == [2.0, 2.0, 2.0]
    assert written(folder) == before


@pytest.mark.parametrize("size", [0, 50, -1])
def test_a_damaged_file_costs_time_once(folder: Path, size: int) -> None:
    make_loop(4)(1)
    (path,) = files(folder)
    path.write_bytes(path.read_bytes()[:size])
    second, third = make_loop(4), make_loop(4)
    assert (second(7), hits(second)) == (28, 0)
    assert (third(7), hits(third)) == (28, 1)


def test_a_full_disk_costs_time_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    machine_code.warn_once.cache_clear()
    assert [make_loop(k)(7) for k in (5, 6)] == [35, 42]
    # A test that ran before in this process may have set the loggers to INFO.
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "machine code cannot be kept on disk, the next start will compile again: "
        "[Errno 28] No space left on device"
    ]


def test_without_a_folder_all_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from numba import config

    (tmp_path / "file").touch()
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "file" / "below"))
    assert make_loop(7)(7) == 49


def test_numba_has_the_private_parts_that_are_replaced() -> None:
    """Where this fails, Numba has moved them: adapt `compile`, or all starts compile for longer."""
    loop = make_loop(1)
    assert isinstance(loop._cache, machine_code._OwnFiles), f"numba {numba.__version__}: no cache"
    assert isinstance(loop._cache, caching.FunctionCache)
    newest = numba.version_info.short
    assert newest <= late.NEWEST, f"run the tests with numba {newest}, and raise NEWEST in compile/late.py"
    assert late.options(), f"numba {numba.__version__} lacks some of {late.PRIVATE_PARTS}"


def test_a_newer_numba_compiles_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its private parts are not touched: no upper bound of the version is needed."""
    monkeypatch.setattr(late.numba, "version_info", SimpleNamespace(short=(0, 99)))
    assert late.options() == {}


def replaced(monkeypatch: pytest.MonkeyPatch, code: str | None = None) -> None:
    """Give this process another text of the package; and where it is given, another code of all functions."""
    monkeypatch.setattr(machine_code, "SOURCE", "e" * 64)
    monkeypatch.setattr(machine_code, "source_digest", lambda: "e" * 64)
    if code is not None:
        monkeypatch.setattr(machine_code, "code_digest", lambda *_: code)


def test_other_code_is_compiled_in_its_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_loop(8)(1)
    replaced(monkeypatch, code="c" * 64)
    changed, again = make_loop(8), make_loop(8)
    assert (changed(7), hits(changed)) == (56, 0)
    assert (again(7), hits(again)) == (56, 1)
    assert len(files(folder)) == 1


def test_code_is_found_beside_another_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as another comment; the file is marked then, so that the next process need not compare code."""
    make_loop(8)(1)
    replaced(monkeypatch)
    same, again = make_loop(8), make_loop(8)
    assert (same(7), hits(same)) == (56, 1)
    monkeypatch.setattr(machine_code, "code_digest", None)
    assert (again(7), hits(again)) == (56, 1)


def test_a_process_whose_text_was_replaced_keeps_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs the old text: under the new one's name its machine code would be taken for that of the new."""
    monkeypatch.setattr(machine_code, "source_digest", lambda: "e" * 64)
    assert make_loop(9)(7) == 63
    assert files(folder) == []


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package's text, which the digests are of."""
    for path in sources.ROOT.rglob("*.py"):
        place = tmp_path / sources.ROOT.name / path.relative_to(sources.ROOT)
        place.parent.mkdir(exist_ok=True, parents=True)
        place.write_bytes(path.read_bytes())
    monkeypatch.setattr(sources, "ROOT", tmp_path / sources.ROOT.name)
    return tmp_path / sources.ROOT.name


def digest(*values: object) -> str:
    """The digest of the code of values, or of the sum of the measurement equation, in a new process."""
    sources._code.cache_clear()
    sources._path.cache_clear()
    return sources.code_digest(*(values or (forward.make_visibilities(True, 1),)))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


# A comment, docstrings, line breaks, another kernel, a caller.
UNSEEN = [
    ("physics/phase.py", "\n_TWO_PI", "\n# A comment.\n\n_TWO_PI"),
    ("physics/phase.py", '"""The phase of a source', '"""A docstring'),
    ("physics/phase.py", '    """n - 1 = ', '    """n minus 1 = '),
    ("physics/phase.py", "_TWO_PI = 2.0 * math.pi", "_TWO_PI = (\n    2.0 * math.pi\n)"),
    ("idg/cuda/grid.py", "\nimport ", "\nOTHER = 1\nimport "),
    ("prediction.py", "\nimport ", "\nOTHER = 1\nimport "),
]
SEEN = {
    "constant": ("physics/phase.py", "* math.pi", "* math.e"),
    "scalar physics": ("physics/phase.py", "return -r2 / (1.0 + math", "return r2 / (1.0 + math"),
    "loop": ("cpu/forward.py", "_PIECE, _PIECE_OF_ONE = 48", "_PIECE, _PIECE_OF_ONE = 49"),
    "compiler": ("compile/jit.py", '"contract", ', ""),
    "arguments": ("inputs.py", "class Inputs(NamedTuple):", "class Inputs(NamedTuple):\n    other: int"),
}


def test_what_changes_machine_code_counts_and_nothing_else(copied: Path) -> None:
    before = digest()
    for name, old, new in UNSEEN:
        change(copied / name, old, new)
    assert digest() == before
    for what, edit in SEEN.items():
        change(copied / edit[0], *edit[1:])
        assert digest() != before, what
        before = digest()


def test_code_of_what_a_function_holds_or_is_called_with_counts(copied: Path) -> None:
    """It need not be imported where the function is defined."""

    def outer(values: Any) -> float:
        return inner(values[0])

    inner = phase.n_minus_1
    made_of = (outer,), (make(1), (numba.typeof(Origin(1.0)),)), (make(1),)
    before = [digest(*values) for values in made_of]
    change(copied / "physics/phase.py", "return -r2 / (1.0 + math", "return r2 / (1.0 + math")
    after = [digest(*values) for values in made_of]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, False, True]


def test_the_digest_is_of_all_sources(copied: Path) -> None:
    before = machine_code.source_digest()
    for name in ("physics/phase.py", "idg/cuda/grid.py"):
        with (copied / name).open("a") as file:
            file.write("# changed\n")
        assert machine_code.source_digest() != before
        before = machine_code.source_digest()


# ---- kernels: what takes the place of Numba's cache


class FakeImpl:
    """What turns machine code into bytes: here it is text."""

    def __init__(self, folder: Path) -> None:
        self.locator = SimpleNamespace(get_cache_path=lambda: str(folder), ensure_cache_path=lambda: None)

    def check_cachable(self, _: Any) -> bool:
        return True

    def reduce(self, code: Any) -> str:
        return str(code.text)

    def rebuild(self, _: Any, text: str) -> str:
        return text


class FakeCache(caching.NullCache):
    """A cache as far as `enable` knows one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_func, self._impl = function, FakeImpl(FakeKernel.folder)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Prepare the context and call the other method, as Numba does."""
        context.refresh()
        return self._load_overload(signature, context)  # type: ignore[attr-defined]


class FakeKernel:
    """A dispatcher as far as `enable` knows one; its folder is shared with those of other processes."""

    folder = Path()

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        FakeKernel.folder, self.py_func = folder, function
        self._cache: Any = caching.NullCache()

    def enable_caching(self) -> None:
        self._cache = FakeCache(self.py_func)

    def save(self, signature: Any, kept: str, codegen: Any) -> None:
        self._cache.save_overload(signature, SimpleNamespace(text=kept, codegen=codegen))

    def load(self, signature: Any, codegen: Any) -> Any:
        return self._cache.load_overload(
            signature, SimpleNamespace(codegen=lambda: codegen, refresh=lambda: None)
        )


H200, OLDER = (SimpleNamespace(magic_tuple=lambda cc=cc: ((13, 0), cc)) for cc in ((9, 0), (8, 0)))


def kernel(function: Callable[..., Any], disk: Path, *versions: str, **options: Any) -> FakeKernel:
    found = FakeKernel(function, disk)
    machine_code.enable(found, *versions, **options)
    return found


def test_a_kernel_is_found_again_and_no_other(tmp_path: Path) -> None:
    disk = tmp_path
    kernel(make(1), disk, "1", "64 registers").save((float32,), "code", H200)
    again = kernel(make(1), disk, "1", "64 registers")
    assert again.load((float32,), H200) == "code"
    assert again.load((float64,), H200) is None
    assert again.load((float32,), OLDER) is None
    assert kernel(make(1), disk, "1", "32 registers").load((float32,), H200) is None
    assert kernel(make(1), disk, "2", "64 registers").load((float32,), H200) is None
    assert kernel(make(2), disk, "1", "64 registers").load((float32,), H200) is None


@pytest.mark.skipif(device.simulated(), reason="the simulator has functions in the place of instructions")
def test_instructions_of_tensor_cores_can_be_identified() -> None:
    """Kernels hold them: what has no identity keeps a kernel from the disk, half a minute for each."""
    of_precision = [tensor_cores.make_turn, tensor_cores.make_load, tensor_cores.make_store]
    made = [make(single) for make in of_precision for single in (True, False)]
    made += [
        tensor_cores.make_product(single, all_rows) for single in (True, False) for all_rows in (True, False)
    ]
    others = [
        tensor_cores.make_fetch_line,
        tensor_cores.make_read_complex,
        tensor_cores.make_load_global,
        tensor_cores.make_store_pair,
    ]
    others += [tensor_cores.make_address, tensor_cores.make_split, tensor_cores.make_whole]
    made += [make() for make in others] + [tensor_cores.make_weigh(half) for half in (0, 1)]
    different = set(map(identity, made))
    # Turns in single precision go by one instruction, whatever there is for rows.
    assert len(different) >= len(made) - 1


def test_what_the_device_refuses_is_compiled_anew(tmp_path: Path) -> None:
    disk = tmp_path
    kernel(make(1), disk).save((float32,), "code", H200)

    def refuse(found: Any) -> None:
        raise RuntimeError(f"no binary in {found}")

    assert kernel(make(1), disk, ready=refuse).load((float32,), H200) is None
    assert kernel(make(1), disk, ready=len).load((float32,), H200) == "code"


def test_a_kernel_that_cannot_be_kept_works_without(tmp_path: Path) -> None:
    """Something that it closes over has no name; or numba-cuda is built in another way."""
    found = FakeKernel(make(Object()), tmp_path)
    before = found._cache
    machine_code.enable(found)
    assert found._cache is before
    found = FakeKernel(make(1), tmp_path)
    before = found._cache

    def other() -> None:
        found._cache = SimpleNamespace(file="another")

    found.enable_caching = other  # type: ignore[method-assign]
    machine_code.enable(found)
    assert found._cache is before


# ---- whole processes


USED = """
import json, sys
from rime_kernels.compile import cache
kernels, enable = [], cache.enable
def note(compiled, *versions, **more):
    enable(compiled, *versions, **more)
    kernels.append(compiled)
cache.enable = note
import numpy as np
from rime_kernels import Rime, Rows, Sources, stokes_to_corr

rng = np.random.default_rng(1)
first, second = np.triu_indices(5, 1)
position = rng.normal(scale=800.0, size=(5, 3))
uvw = position[second] - position[first]
rows = Rows(uvw, first, second, np.zeros(10, int), np.array([1e9, 1.1e9]), stokes_to_corr(["XX", "YY"]), 5, 1)
lm = rng.uniform(-0.01, 0.01, (1, 2, 2))
stokes = np.ones((1, 1, 2, 4)) * [1, 0.1, 0, 0]
shape = np.full((1, 1, 3), 1e-5)
sources = Sources(lm, stokes, np.full(2, 1e9), np.zeros((1, 2, 4, 1)), np.zeros(2, bool), shape)
vis = rng.normal(size=(10, 2, 2)) + 0j
rime = Rime(rows, vis=vis, weight=np.ones(vis.shape), extent=0.02, backend=sys.argv[1])
chi2, slopes = rime.chi2_and_gradient(sources)
values = [*rime.chi2(sources), *chi2, *slopes.lm.ravel()]
used = [kernel.stats for kernel in kernels if hasattr(kernel, "stats")]
print(json.dumps({
    "bits": [float(x).hex() for x in values],
    "found": sum(sum(stats.cache_hits.values()) for stats in used),
    "compiled": sum(sum(stats.cache_misses.values()) for stats in used),
}))
"""


def use(folder: Path, backend: str) -> dict[str, Any]:
    """What a process with this folder for machine code has found, compiled and computed."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "BIRO_TUNING": "off"}
    command = [sys.executable, "-c", USED, backend]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def check_a_second_process(folder: Path, backend: str) -> None:
    """It compiles nothing, and has the same bits from machine code found on disk."""
    first = use(folder, backend)
    before = written(folder)
    second = use(folder, backend)
    assert written(folder) == before
    assert first["compiled"] >= 3
    assert second["compiled"] == 0
    # Two kernels of one text, constants and types are one on disk: the second is found in the first process.
    assert second["found"] == first["compiled"] + first["found"]
    assert second["bits"] == first["bits"]


def test_a_second_process_compiles_no_loop(tmp_path: Path) -> None:
    check_a_second_process(tmp_path, "cpu")


@pytest.mark.cuda
def test_a_second_process_compiles_no_kernel(tmp_path: Path, cuda_backend: str) -> None:
    if device.simulated():
        pytest.skip("the simulator compiles nothing")
    check_a_second_process(tmp_path, "cuda")
