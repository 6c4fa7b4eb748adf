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

import numpy as np
import pytest
from numba import float32, float64, njit, prange

from rime_kernels import _identity, _jit, _kept_cuda, device

identity = _identity.identity


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


def test_defaults_tell_functions_apart_and_digests_do_not() -> None:
    def with_default(k: int) -> Callable[..., int]:
        return lambda x, n=k: x + n

    def with_digest(digest: int) -> Callable[..., int]:
        return lambda x: x + digest

    assert identity(with_default(1)) != identity(with_default(2))
    assert identity(with_digest(1)) == identity(with_digest(2))


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
    with pytest.raises(_identity.UnknownError, match=r"Object object .* is not known"):
        identity(make_outer(make(1, Object())))


def test_identities_are_those_of_other_processes() -> None:
    """Whatever the seed of hashes and the order in which functions are made."""
    code = """
        from rime_kernels import _identity, _rime_cpu, _gradient_cpu
        for single in ORDER:
            for n in (1, 4):
                loop = _gradient_cpu.make_gradients(single, n, 1)
                print(loop.py_func.__qualname__)
    """

    def names(order: str, seed: str) -> list[str]:
        text = textwrap.dedent(code).replace("ORDER", order)
        command = [sys.executable, "-c", text]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        return sorted(done.stdout.split())

    first = names("(True, False)", "1")
    assert len(set(first)) == 4
    assert names("(False, True)", "2") == first


def make_loop(factor: int) -> Any:
    @_jit.loop
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


def test_each_loop_has_its_own_files(folder: Path) -> None:
    """Two processes that save at once cannot put one loop in place of another: they share no file."""
    assert [make_loop(k)(7) for k in (2, 3)] == [14, 21]
    indices = sorted(path.name for path in folder.rglob("*.nbi"))
    assert len(indices) == 2
    again = make_loop(3)
    assert again(7) == 21
    assert sum(again.stats.cache_hits.values()) == 1
    assert sorted(path.name for path in folder.rglob("*.nbi")) == indices


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_damaged_file_costs_time_only(folder: Path, suffix: str) -> None:
    make_loop(4)(1)
    for path in folder.rglob(f"*.{suffix}"):
        path.write_bytes(path.read_bytes()[:50])
    assert make_loop(4)(7) == 28


def test_a_full_disk_costs_time_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from numba.core.caching import IndexDataCacheFile

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_save_data", full)
    with caplog.at_level("INFO"):
        assert make_loop(5)(7) == 35
    assert "No space left on device" in caplog.text
    assert make_loop(5)(7) == 35  # the index names a file that is not there


# ---- kernels: what Numba's cache is made to do, with a disk that is a dict


class FakeKernel:
    """A dispatcher as far as `keep` knows one; `disk` is shared with those of other processes."""

    def __init__(self, function: Callable[..., Any], disk: dict[str, Any], **options: Any) -> None:
        self.py_func, self.targetoptions, self._disk = function, options, disk
        self.__wrapped__ = function
        self._cache: Any = None

    def __call__(self) -> None:
        """Dispatchers can be called."""

    def enable_caching(self) -> None:
        def read(name: str) -> Any:
            if name not in self._disk:
                raise FileNotFoundError(name)
            return self._disk[name]

        file = SimpleNamespace(_load_data=read, _save_data=self._disk.__setitem__)
        cache = SimpleNamespace(_cache_file=file, _impl=SimpleNamespace(filename_base="base"))
        cache.save_overload = lambda sig, kept, code: cache._cache_file.save(
            cache._index_key(sig, code), kept
        )
        cache.load_overload = lambda sig, code: cache._cache_file.load(cache._index_key(sig, code))
        self._cache = cache

    def save(self, signature: Any, kept: str, codegen: Any) -> None:
        self._cache.save_overload(signature, kept, codegen)

    def load(self, signature: Any, codegen: Any) -> Any:
        return self._cache.load_overload(signature, codegen)


H200, OLDER = (SimpleNamespace(magic_tuple=lambda cc=cc: ((13, 0), cc)) for cc in ((9, 0), (8, 0)))


def kept(
    function: Callable[..., Any], disk: dict[str, Any], version: str = "1", **options: Any
) -> FakeKernel:
    found = _kept_cuda.keep(FakeKernel(function, disk, **options), version)
    assert isinstance(found, FakeKernel)
    return found


def test_a_kernel_is_found_again_and_no_other() -> None:
    disk: dict[str, Any] = {}
    kept(make(1), disk, max_registers=64).save((float32,), "code", H200)
    assert kept(make(1), disk, max_registers=64).load((float32,), H200) == "code"
    assert kept(make(1), disk, max_registers=64).load((float64,), H200) is None
    assert kept(make(1), disk, max_registers=64).load((float32,), OLDER) is None
    assert kept(make(1), disk, max_registers=32).load((float32,), H200) is None
    assert kept(make(2), disk, max_registers=64).load((float32,), H200) is None
    assert kept(make(1), disk, "2", max_registers=64).load((float32,), H200) is None


def test_a_kernel_of_other_sources_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    disk: dict[str, Any] = {}
    kept(make(1), disk).save((float32,), "old", H200)
    monkeypatch.setattr(_kept_cuda, "_source_digest", lambda: 1)
    assert kept(make(1), disk).load((float32,), H200) is None
    kept(make(1), disk).save((float32,), "new", H200)
    assert kept(make(1), disk).load((float32,), H200) == "new"
    assert len(disk) == 1  # in the place of the old


@pytest.mark.parametrize("error", [RuntimeError("no locator"), AttributeError("_cache_file")])
def test_a_kernel_that_cannot_be_kept_works_without(error: Exception) -> None:
    """No folder can be written; or numba-cuda is built in another way."""
    kernel = FakeKernel(make(1), {})
    before = kernel._cache = SimpleNamespace()

    def refuse() -> None:
        kernel._cache = "half made"
        raise error

    kernel.enable_caching = refuse  # type: ignore[method-assign]
    assert _kept_cuda.keep(kernel, "1") is kernel
    assert kernel._cache is before


def test_a_kernel_is_used_though_the_disk_fails() -> None:
    class Full(dict[str, Any]):
        def __setitem__(self, name: str, kept: Any) -> None:
            raise OSError(28, "No space left on device")

    disk = Full()
    kept(make(1), disk).save((float32,), "code", H200)
    assert not disk
    damaged = {next(iter(kept_names())): "not a pair"}
    assert kept(make(1), damaged).load((float32,), H200) is None


def kept_names() -> dict[str, Any]:
    """What one kernel leaves on disk."""
    disk: dict[str, Any] = {}
    kept(make(1), disk).save((float32,), "code", H200)
    return disk


def test_a_kernel_of_unknown_constants_is_not_kept() -> None:
    kernel = FakeKernel(make(Object()), {})
    assert _kept_cuda.keep(kernel, "1") is kernel
    assert kernel._cache is None


def test_the_digest_is_of_all_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(_kept_cuda.__file__).parent
    for path in here.rglob("*.py"):
        (tmp_path / path.relative_to(here)).parent.mkdir(exist_ok=True)
        (tmp_path / path.relative_to(here)).write_bytes(path.read_bytes())
    digest = _kept_cuda._source_digest.__wrapped__
    before = digest()
    for module in (_kept_cuda, _jit):
        monkeypatch.setattr(module, "__file__", str(tmp_path / "_here.py"))
    assert digest() == before
    for name in ("phase.py", "idg/_grid_cuda.py"):
        with (tmp_path / name).open("a") as file:
            file.write("# changed\n")
        assert digest() != before
        before = digest()


USED = """
import json, sys
from rime_kernels import _kept_cuda
kernels, keep = [], _kept_cuda.keep
_kept_cuda.keep = lambda *given: kernels.append(keep(*given)) or kernels[-1]
if len(sys.argv) > 1:
    _kept_cuda._source_digest = lambda: int(sys.argv[1])
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
rime = Rime(rows, vis=vis, weight=np.ones(vis.shape), extent=0.02, backend="cuda")
chi2, slopes = rime.chi2_and_gradient(sources)
used = [kernel.stats for kernel in kernels]
print(json.dumps({
    "bits": [x.hex() for x in [*rime.chi2(sources), *chi2, *slopes.lm.ravel()]],
    "found": sum(sum(stats.cache_hits.values()) for stats in used),
    "compiled": sum(sum(stats.cache_misses.values()) for stats in used),
}))
"""


@pytest.mark.cuda
def test_a_second_process_compiles_nothing(tmp_path: Path, cuda_backend: str) -> None:
    """The same bits from machine code found on disk; not found by a package whose text differs."""
    if device.simulated():
        pytest.skip("the simulator compiles nothing")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "BIRO_TUNING": "off"}

    def run(*options: str) -> dict[str, Any]:
        command = [sys.executable, "-c", USED, *options]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    first, second = run(), run()
    assert first["found"] == 0
    assert second["compiled"] == 0
    assert second["found"] == first["compiled"] > 3
    assert second["bits"] == first["bits"]
    assert run("1")["found"] == 0
