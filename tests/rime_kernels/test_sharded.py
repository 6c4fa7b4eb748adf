"""Rows that several devices share: the same bits for any number of them, and the sums of one."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from threading import Event, Thread, current_thread, main_thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rime_kernels import BackendError, Rime, Smearing, device
from rime_kernels import rime as rime_module
from rime_kernels.compile.call_lock import CALL_LOCK, device_lock, take_device
from rime_kernels.cpu import engine as cpu_engine
from rime_kernels.device import graph, packages
from rime_kernels.engine.call_memo import call_memo, memoised_within_call
from rime_kernels.engine.device_threads import DeviceThread, HostCPU, check_devices, threads_of
from rime_kernels.engine.local_shards import LocalShards, Shard, ShardCall
from rime_kernels.engine.shards import MOST_SHARDS, shard_bounds, shared_out
from rime_kernels.errors import InputError
from rime_kernels.geometry import row_table
from tests.rime_kernels.problems import data_for

# Sums of some thousand terms in double precision, taken in another order.
ORDER = 1e-12


@pytest.fixture
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`devices=n` are n pretended ones."""
    monkeypatch.setattr(rime_module, "threads_of", lambda _, n: [HostCPU() for _ in range(n)])


def found_by(rime: Rime, sources: Any, dof: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """All that a `Rime` sums, and products of its derivatives, of a change that is the gradient."""
    chi2, gradient = rime.chi2_and_gradient(sources, dof)
    pulled = rime.adjoint(sources, np.broadcast_to(data_for(rime.rows)["vis"], rime.predict(sources).shape))
    found = {"chi2": rime.chi2(sources, dof), "with gradient": chi2, "vis": rime.predict(sources)}
    found["residual"], found["squares"] = rime.residual(sources), rime.weighted_residual2(sources)
    found["some"] = rime.predict_some(sources, np.array([5, 1, 3]), slice(1, None, 2))
    one, change = sources.entries(0, 1), gradient.entries(0, 1)
    change = dataclasses.replace(change, scaled_dof=None, stokes=change.stokes * sources.polarised)
    found["information"] = rime.information(one, change)
    product = rime.information_product(one, change)
    for name, of in (("", gradient), ("pulled ", pulled), ("product ", product)):
        found |= {name + key: x for key, x in vars(of).items() if x is not None}
    return found


def assert_near(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        largest = np.abs(values).max(initial=0.0)
        np.testing.assert_allclose(found[name], values, rtol=0, atol=ORDER * largest, err_msg=name)


_AT_THE_END = """
from rime_kernels import device
from rime_kernels.engine.device_threads import DeviceThread
device.select = lambda number: print("selected", number)
device.leave_cleanup = lambda: print("left")
threads = [DeviceThread(number, "GPU") for number in range(3)]
print(threads[0].submit(lambda: "first").result(), threads[2].submit(lambda: "last").result())
"""


def test_threads_of_gpus_leave_cleanup_whatever_they_did() -> None:
    """After flagging, too: Numba would give back modules of two GPUs in one thread: the driver crashes."""
    done = subprocess.run([sys.executable, "-c", _AT_THE_END], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "first last", "left", "left", "selected 0", "selected 2"]


# ---- shards


def test_shards_are_whole_time_slots_as_equal_as_these_allow() -> None:
    rng = np.random.default_rng(1)
    for n_time in (1, 2, 23, 24, 25, 100, 1000):
        each = rng.integers(0, 50, n_time)  # some slots have no row
        each[0] += 1
        table = row_table(np.repeat(np.arange(n_time), each), n_time)
        bounds = shard_bounds(table)
        assert bounds[0] == 0
        assert bounds[-1] == each.sum()
        assert np.all(np.diff(bounds) > 0)
        assert np.isin(bounds, table.slot_start).all()
        assert bounds.size - 1 <= MOST_SHARDS
        # A bound lies within half the largest slot of where it should: shards differ by one slot at most.
        assert np.diff(bounds).max() <= each.sum() / min(MOST_SHARDS, np.count_nonzero(each)) + each.max()


def test_devices_share_rows_as_equally_as_shards_allow() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        rows = rng.integers(1, 9, rng.integers(1, 9))
        for n_device in (1, 2, 3, 7):
            found = shared_out(np.concatenate([[0], np.cumsum(rows)]), n_device)
            assert len(found) == n_device
            assert [shard for each in found for shard in each] == list(range(rows.size))
            most = max(rows[each].sum() for each in found if each)
            assert most == _least_most(rows.tolist(), n_device)


def _least_most(rows: list[int], n_device: int) -> int:
    """By trying all ways to cut a list in so many parts."""
    if n_device == 1 or len(rows) == 1:
        return sum(rows)
    return min(max(sum(rows[:i]), _least_most(rows[i:], n_device - 1)) for i in range(1, len(rows)))


# ---- sums


@pytest.mark.usefixtures("_on_the_cpu")
@pytest.mark.parametrize("form", ["factored", pytest.param("row", marks=pytest.mark.thorough)])
def test_any_number_of_devices_gives_the_same_bits(problem, sky, beam_of, form) -> None:
    """Of 1, 2, 3 and 7 devices; and the sums of none, in another order."""
    rows = problem(n_antenna=4, n_time=9, n_chan=3)
    shuffled = np.random.default_rng(3).permutation(rows.n_row)  # rows in no order of time
    columns = ("uvw", "antenna1", "antenna2", "time_index")
    rows = dataclasses.replace(rows, **{name: getattr(rows, name)[shuffled] for name in columns})
    sources, dof = sky(rows, beam=beam_of(rows, "gaussian")), np.array([3.0, 50.0])
    made = {"backend": "cpu", "extent": 0.04, "form": form, **data_for(rows)}
    whole, one, *others = (Rime(rows, **made, devices=n) for n in (None, 1, 2, 3, 7))
    for t in (None, dof):
        first = found_by(one, sources, t)
        assert_near(first, found_by(whole, sources, t))
        for rime in others:
            for name, values in found_by(rime, sources, t).items():
                np.testing.assert_array_equal(values, first[name], err_msg=name)
    assert f" shards of {rows.n_row} rows" in one.plan(sources)


@pytest.mark.usefixtures("_on_the_cpu")
def test_templates_and_matrices_and_averages(problem, sky, jones_beam_of) -> None:
    rows = problem(n_antenna=4, n_time=5, n_chan=2)
    rng, made = np.random.default_rng(4), {"backend": "cpu", "extent": 0.04, **data_for(rows)}
    template = rng.normal(size=(1, rows.n_row, rows.n_chan, rows.n_corr)) * (1 + 0.5j)
    with_template = dataclasses.replace(sky(rows), template_scale=rng.normal(size=(2, 1)))
    cases = [
        ({"template": template, "template_lm": np.zeros((1, 2))}, with_template),
        ({}, sky(rows, beam=jones_beam_of(rows, turned=True))),
        ({"smearing": Smearing(0.5, rng.uniform(1, 40, rows.n_row), np.full(2, 1e5), 1e-2)}, sky(rows)),
    ]
    for options, sources in cases:
        whole, two = (Rime(rows, **made, **options, devices=n) for n in (None, 2))
        assert_near(found_by(two, sources), found_by(whole, sources))


@pytest.mark.usefixtures("_on_the_cpu")
def test_what_no_row_changes_is_made_once_in_a_call(problem, sky, monkeypatch) -> None:
    """Parameters and spectra; and anew for the next call, whose sources may have been changed in place."""
    rows = problem(n_antenna=3, n_time=6, n_chan=2)
    made = {"backend": "cpu", "extent": 0.04, **data_for(rows)}
    shared, sources, n_made = Rime(rows, **made, devices=1), sky(rows), {"inputs": 0, "make_spectra": 0}

    def counted(name: str) -> Any:
        make = getattr(cpu_engine, name)

        def make_and_count(*given: Any) -> Any:
            n_made[name] += 1
            return make(*given)

        return make_and_count

    for name in n_made:
        monkeypatch.setattr(cpu_engine, name, counted(name))
    before = shared.chi2(sources)
    assert n_made == {"inputs": 1, "make_spectra": 1}
    sources.stokes[...] *= 2.0
    after = shared.chi2(sources)
    assert n_made == {"inputs": 2, "make_spectra": 2}
    assert np.all(before != after)
    np.testing.assert_allclose(after, Rime(rows, **made).chi2(sources), rtol=ORDER)


def test_once_is_once_for_the_same_objects_in_the_same_thread() -> None:
    one, other, numbers = object(), object(), iter(range(100))

    def make(*of: object, given: object = None) -> int:
        return memoised_within_call("number", of, lambda: next(numbers), given)

    assert [make(one), make(one)] == [0, 1]
    with call_memo():
        assert [make(one, None), make(one, None), make(other, None), make(other, None)] == [2, 2, 3, 3]
        assert [make(one, None), make(one, None, given=b"x"), make(one, None, given=b"x")] == [4, 5, 5]
        assert memoised_within_call("another kind", (one, None), lambda: "x") == "x"
        assert make(one, None, given=b"x") == 5
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(make, one, None, given=b"x").result() == 6
        with call_memo():  # one within another has the results of that
            assert make(one, None, given=b"x") == 5
        assert make(one, None, given=b"x") == 5
    assert make(one, None, given=b"x") == 7


@pytest.mark.usefixtures("_on_the_cpu")
def test_nothing_that_is_asked_for_and_what_fails(problem, sky, monkeypatch) -> None:
    rows = problem(n_antenna=3, n_time=4)
    sources = sky(rows)
    rime = Rime(rows, backend="cpu", extent=0.04, **data_for(rows), devices=3)
    none = sources.entries(0, 0)
    assert rime.chi2(none).shape == (0,)
    assert rime.predict(none).shape[0] == 0
    expected = rime.chi2(sources)
    (_, shards) = rime.engine.local_shards.by_device[1]  # type: ignore[attr-defined]

    def fail(*_: object) -> None:
        raise BackendError("the device is lost")

    with monkeypatch.context() as patched:
        patched.setattr(shards[0].engine, "start_chi2", fail)
        with pytest.raises(BackendError, match="the device is lost"):
            rime.chi2(sources)
    np.testing.assert_array_equal(rime.chi2(sources), expected)


def test_threads_that_call_do_not_wait_for_each_other(problem, sky, monkeypatch) -> None:
    """The one holds the lock of calls while the thread of the device is at work for the other."""
    monkeypatch.setattr(device, "select", lambda _: None)  # the CPU in a thread of its own, as GPUs have one
    monkeypatch.setattr(device, "selected", lambda _: nullcontext())
    monkeypatch.setattr(rime_module, "threads_of", lambda *_: [DeviceThread(0, "CPU")])
    rows = problem(n_antenna=3, n_time=4)
    rime = Rime(rows, backend="cpu", extent=0.04, **data_for(rows), devices=1)
    sources = sky(rows).entries(0, 1)
    change = dataclasses.replace(rime.chi2_and_gradient(sources)[1], scaled_dof=None)
    calls = [lambda: rime.chi2(sources), lambda: rime.information(sources, change)]
    for call in calls:  # compiled
        call()
    done: list[int] = []
    threads = [
        Thread(target=lambda call=call: done.extend(1 for _ in range(20) if call() is not None), daemon=True)
        for call in calls
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)  # milliseconds, but for a busy machine
        assert not thread.is_alive()
    assert len(done) == 40


def test_a_thread_with_a_gpu_of_its_own_waits_for_nobody_there() -> None:
    """But on the CPU, where Numba's loops run one at a time."""

    def is_free() -> bool:
        taken = CALL_LOCK.acquire(timeout=0.05)
        if taken:
            CALL_LOCK.release()
        return taken

    def leaves_others_free(backend: str) -> bool:
        with ThreadPoolExecutor(1) as other, device_lock(backend):
            return other.submit(is_free).result()

    with ThreadPoolExecutor(1) as own:
        assert not own.submit(leaves_others_free, "cuda").result()
        own.submit(take_device).result()
        assert own.submit(leaves_others_free, "cuda").result()
        assert not own.submit(leaves_others_free, "cpu").result()
    assert not leaves_others_free("cuda")


# ---- recorded calls


class CudaGraph:
    """An engine of a number; what is asked of it is written down, with the thread that asks."""

    def __init__(self, number: float, log: list[tuple[str, float, bool]], *, records: bool = True) -> None:
        self.number, self.log, self.records = number, log, records
        self.breaks = False

    def _note(self, what: str) -> None:
        self.log.append((what, self.number, current_thread() is main_thread()))

    def start_chi2(self, *_: object) -> Any:
        self._note("start")
        return lambda: self.number

    def launch_graph(self, *_: object) -> Any:
        if not self.records:
            return None
        self._note("play")
        if self.breaks:
            raise BackendError(f"shard {self.number} is lost")
        return lambda: self._note("end") or self.number


def shards_of(log: list[Any], monkeypatch: pytest.MonkeyPatch, *made: list[CudaGraph]) -> LocalShards:
    """Those engines on a device each, which has made a call."""
    monkeypatch.setattr(device, "select", lambda _: None)
    monkeypatch.setattr(device, "selected", lambda _: nullcontext())
    shards = LocalShards([DeviceThread(number, "GPU") for number in range(len(made))])
    for number, engines in enumerate(made):
        for engine in engines:
            shards.add(number, lambda _, engine=engine: Shard(engine, None), 1)  # type: ignore[arg-type]
    return shards


def test_captured_calls_are_begun_by_the_thread_that_asks_devices_in_turn(problem, sky, monkeypatch) -> None:
    log: list[tuple[str, float, bool]] = []
    engines = [CudaGraph(number, log) for number in range(5)]
    shards = shards_of(log, monkeypatch, engines[:2], engines[2:])
    call = ShardCall("chi2", sky(problem()))
    # What is new may have to be compiled: by the thread of the one device, then by that of the other.
    assert shards.start(call)() == [0, 1, 2, 3, 4]
    assert log == [("start", number, False) for number in range(5)]
    log.clear()
    assert shards.start(call, end=lambda number, found: (number, found))() == [(i, i) for i in range(5)]
    assert log == [(what, number, True) for what in ("play", "end") for number in (0, 2, 1, 3, 4)]


def test_a_device_that_has_not_captured_all_leaves_the_rest_to_its_thread(problem, sky, monkeypatch) -> None:
    log: list[tuple[str, float, bool]] = []
    engines = [CudaGraph(number, log, records=number != 1) for number in range(5)]
    shards = shards_of(log, monkeypatch, engines[:3], engines[3:])
    call = ShardCall("chi2", sky(problem()))
    for _ in range(2):
        log.clear()
        assert shards.start(call)() == [0, 1, 2, 3, 4]
    assert [each for each in log if each[0] == "play"] == [("play", number, True) for number in (0, 3, 4)]
    assert [each for each in log if each[0] == "start"] == [("start", number, False) for number in (1, 2)]


def test_an_error_is_raised_once_the_others_are_done(problem, sky, monkeypatch) -> None:
    log: list[tuple[str, float, bool]] = []
    engines = [CudaGraph(number, log) for number in range(4)]
    shards = shards_of(log, monkeypatch, engines[:2], engines[2:])
    call = ShardCall("chi2", sky(problem()))
    shards.start(call)()
    engines[0].breaks = True
    log.clear()
    wait = shards.start(call)
    with pytest.raises(BackendError, match="shard 0 is lost"):
        wait()
    assert [number for what, number, _ in log if what == "end"] == [2, 1, 3]


def test_captured_calls_wait_until_the_thread_of_a_device_is_done(problem, sky, monkeypatch) -> None:
    """An engine does one thing at a time, whichever thread begins it."""
    log: list[tuple[str, float, bool]] = []
    engines = [CudaGraph(0, log), CudaGraph(1, log, records=False)]
    shards = shards_of(log, monkeypatch, engines)
    call = ShardCall("chi2", sky(problem()))
    assert shards.start(call)() == [0, 1]
    begun, may_go_on = Event(), Event()

    def start(*_: object) -> Any:
        begun.set()
        assert may_go_on.wait(10.0)
        return lambda: 1

    monkeypatch.setattr(engines[1], "start_chi2", start)
    first = shards.start(call)
    assert begun.wait(10.0)
    log.clear()
    with ThreadPoolExecutor(1) as other:
        second = other.submit(lambda: shards.start(call)())
        with pytest.raises(TimeoutError):
            second.result(0.1)
        assert not log
        may_go_on.set()
        assert second.result(10.0) == first() == [0, 1]


def test_a_device_is_that_of_the_thread_within_and_no_longer(monkeypatch) -> None:
    """Other calls of the thread, before and after, are on the device that it had, or has not chosen yet."""
    current = ["the first"]

    class Gpus:
        def __getitem__(self, number: int) -> Any:
            return self.entered(number)

        @contextmanager
        def entered(self, number: int) -> Iterator[None]:
            current.append(f"number {number}")
            try:
                yield
            finally:
                current.pop()

    attached: list[str] = []
    driver = SimpleNamespace(gpus=Gpus(), current_context=lambda: attached.append(current[-1]))
    monkeypatch.setattr(packages, "simulated", lambda: False)
    monkeypatch.setattr(packages, "cuda", lambda: driver)

    def work() -> list[str]:
        with device.selected(1):
            graph.attach_thread()
            assert current[-1] == "number 1"
        with pytest.raises(ValueError, match="lost"), device.selected(2):
            raise ValueError("lost")
        assert current == ["the first"]
        graph.attach_thread()
        with device.selected(1):
            pass
        graph.attach_thread()
        return attached

    with ThreadPoolExecutor(1) as thread:  # which has never seen a device
        assert thread.submit(work).result() == ["the first"]


# ---- what names devices


@pytest.mark.parametrize("devices", ["both", 0, -1, True, [], [0, 0], [-1], [0.5]])
def test_what_names_no_devices(devices: Any) -> None:
    with pytest.raises(InputError, match='devices must be "all", a number of GPUs, or a list'):
        check_devices(devices)


def test_devices_beside_a_cpu_and_those_that_are_not_there(problem, monkeypatch) -> None:
    with pytest.raises(InputError, match=r'devices=2 are GPUs: they need backend="cuda"'):
        Rime(problem(), backend="cpu", extent=0.01, devices=2)
    monkeypatch.setattr(device, "names", lambda: ["A", "A", "B"])
    with pytest.raises(BackendError, match=r"devices=\[3\]: there are 3 GPUs here, numbered from 0"):
        threads_of("cuda", [3])
    with pytest.raises(BackendError, match="A and B are GPUs of different kinds"):
        threads_of("cuda", "all")
    assert [each.name for each in threads_of("cuda", 2)] == ["GPU 0 (A)", "GPU 1 (A)"]


@pytest.mark.cuda
def test_all_gpus_of_a_machine(cuda_backend, problem, sky, beam_of) -> None:
    """The same bits as the first of them alone, in chi2 that is recorded, too; the sums of the CPU."""
    sizes = {"n_antenna": 2, "n_chan": 1, "n_time": 3} if device.simulated() else {"n_time": 50}
    rows = problem(**sizes)
    sources = sky(rows, 1, 1, 1, beam=beam_of(rows, "gaussian", 1))
    made = {"extent": 0.04, **data_for(rows)}
    every, first = (Rime(rows, backend=cuda_backend, **made, devices=each) for each in ("all", [0]))
    expected = found_by(first, sources)
    assert_near(expected, found_by(Rime(rows, backend="cpu", **made), sources))
    for _ in range(1 if device.simulated() else 3):
        for name, values in found_by(every, sources).items():
            np.testing.assert_array_equal(values, expected[name], err_msg=name)


def test_neighbours_stay_together() -> None:
    bounds = np.arange(25)
    for n_device in (1, 2, 3, 4, 6, 8, 12, 24):
        parts = shared_out(bounds, n_device)
        assert {len(part) for part in parts} == {24 // n_device}
        assert all(b[0] == a[-1] + 1 for a, b in pairwise(parts))
