"""Calls of one kind are recorded and played: nothing of one call may be seen in another.

The simulator records nothing. There a stand-in does: it keeps the buffers of one call as a recording does,
and looks whether the arrays that it was recorded with are still those of the workspace.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rime_kernels import AntennaTerms, BackendError, Rime, Rows, Sources, chi2_many, device
from rime_kernels.cuda.graphs import OnceCalled
from tests.rime_kernels.problems import LINEAR, chi2_of

STATUS = Path("/proc/self/status")


def with_data(rows: Rows, seed: int = 5, **options: Any) -> Rime:
    rng = np.random.default_rng(seed)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    weight = rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)
    vis = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return Rime(rows, vis=vis, weight=weight, **{"backend": "cuda", "extent": 0.04, **options})


def small(problem: Any) -> Rows:
    return problem(n_antenna=3, n_time=1, n_chan=2)


def some(sources: Sources, entries: Any) -> Sources:
    return Sources(
        *(sources.lm[entries], sources.stokes[entries], sources.ref_freq),
        *(sources.spectral_terms[entries], sources.log_spectrum, sources.shape[entries]),
    )


class StandIn:
    """A recording without a device: one set of buffers, and the arrays of the moment it was made."""

    def __init__(
        self, workspace: Any, values: list[np.ndarray], launch: Callable[..., Any], read: Callable[..., Any],
        *, in_turn: bool,
    ) -> None:  # fmt: skip
        self._given = [np.ones(value.shape) for value in values]
        self._launch, self._read, self._workspace, self._used = launch, read, workspace, {}
        self._call()
        captured = type(workspace).parts

        def parts(inner: Any, name: str, shapes: list[tuple[int, ...]], dtype: type) -> Any:
            found = captured(inner, name, shapes, dtype)
            self._used[name] = inner.arrays[name]
            return found

        with pytest.MonkeyPatch.context() as context:
            context.setattr(type(workspace), "parts", parts)
            self._answer = np.empty(self._call().size)

    def _call(self) -> Any:
        return self._launch([device.upload(value) for value in self._given], 0)

    def launch(self, values: list[np.ndarray]) -> Callable[[], Any]:
        for into, value in zip(self._given, values, strict=True):
            into[...] = value
        for name, array in self._used.items():
            assert self._workspace.arrays.get(name) is array, f"{name} was given back"
        self._answer[...] = self._call().copy_to_host()
        return lambda: self._read(self._answer.copy())


@pytest.fixture
def captured(cuda_backend, monkeypatch) -> list[Any]:
    """The graphs that were captured."""
    made = []
    given = StandIn if device.simulated() else device.capture

    def capture(*args: Any, **options: Any) -> Any:
        made.append(given(*args, **options))
        made[-1].options = options
        return made[-1]

    monkeypatch.setattr(device, "capture", capture)
    return made


@pytest.mark.cuda
@pytest.mark.parametrize("form", ["factored", pytest.param("row", marks=pytest.mark.on_device)])
def test_a_graph_is_launched_again_and_again(captured, problem, sky, form) -> None:
    kernel = with_data(small(problem), form=form)
    sources = [sky(kernel.rows, n_batch=1, seed=seed) for seed in range(3)]
    first = [with_data(kernel.rows, form=form).chi2(each) for each in sources]
    for _ in range(2 if device.simulated() else 3):
        for each, expected in zip(sources, first, strict=True):
            np.testing.assert_array_equal(kernel.chi2(each), expected)
    assert len(captured) == 1


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["beam", "matrices"])
def test_what_is_not_there_is_not_sent_where_graphs_are_launched(
    captured, problem, sky, jones_beam_of, monkeypatch, kind
) -> None:
    """`launch_graph` is called by threads that may send nothing: the device's own may be recording a call."""
    rows = small(problem)

    def fixed(seed: int) -> AntennaTerms:
        rng = np.random.default_rng(seed)
        jones = np.eye(2) + 0.1 * rng.normal(size=(1, 1, rows.n_antenna, 1, 2, 2)) + 0j
        jones.setflags(write=False)
        return AntennaTerms(jones, np.zeros(rows.n_time), np.zeros(rows.n_chan))

    def given(seed: int) -> Sources:
        options: dict[str, Any] = (
            {"beam": jones_beam_of(rows, n_batch=1, seed=seed)}
            if kind == "beam"
            else {"antenna_terms": fixed(seed)}
        )
        return sky(rows, n_batch=1, n_gaussian=0, **options)

    kernel, first, second = with_data(rows), given(1), given(2)
    expected = [with_data(rows).chi2(each) for each in (first, second)]
    sent: list[Any] = []
    upload, launch_graph = device.upload, type(kernel.engine).launch_graph

    def counted(engine: Any, *asked: Any) -> Any:
        before = len(sent)
        found = launch_graph(engine, *asked)
        assert found is not None or len(sent) == before, "sent for nothing"
        return found

    monkeypatch.setattr(device, "upload", lambda *values: sent.append(values) or upload(*values))
    monkeypatch.setattr(type(kernel.engine), "launch_graph", counted)
    for each in (0, 0, 0, 1, 1, 0):
        np.testing.assert_array_equal(kernel.chi2((first, second)[each]), expected[each])
    assert captured
    assert sent


def test_two_threads_that_ask_at_once_get_one_answer() -> None:
    begun, may_end, calls = threading.Event(), threading.Event(), list[int]()

    def work() -> int:
        calls.append(1)
        begun.set()
        assert may_end.wait(10.0)
        return 7

    asked = OnceCalled(work)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(asked)
        assert begun.wait(10.0)
        second = threads.submit(asked)
        with pytest.raises(TimeoutError):
            second.result(0.1)  # waits for the first
        may_end.set()
        assert (first.result(10.0), second.result(10.0), asked()) == (7, 7, 7)
    assert len(calls) == 1


@pytest.mark.cuda
def test_an_error_is_that_of_its_own_call(captured, problem, sky, monkeypatch) -> None:
    """The next call is not refused for it."""
    kernel = with_data(small(problem))
    sources = sky(kernel.rows, n_batch=1)
    expected = kernel.chi2(sources)
    kernel.chi2(sources)

    def fail() -> Any:
        raise BackendError("the answer is lost")

    with monkeypatch.context() as patched:
        patched.setattr(captured[0], "launch", lambda _: fail)
        with pytest.raises(BackendError, match="the answer is lost"):
            kernel.chi2(sources)
    np.testing.assert_array_equal(kernel.chi2(sources), expected)


@pytest.mark.cuda
def test_data_that_are_streamed_are_captured(captured, problem, sky) -> None:
    """Copies of slabs on two streams are recorded with the rest."""
    rows = problem(n_antenna=3, n_time=4, n_chan=2)
    kernel = with_data(rows, memory_limit=6000)
    sources = [sky(rows, n_batch=1, seed=seed) for seed in range(3)]
    assert "streamed in" in kernel.plan(sources[0])
    whole = with_data(rows, backend="cpu")
    for each in (*sources, sources[0]):
        # Sums in float64 in another order.
        np.testing.assert_allclose(kernel.chi2(each), whole.chi2(each), rtol=1e-12)
    np.testing.assert_array_equal(
        kernel.chi2(sources[0]), with_data(rows, memory_limit=6000).chi2(sources[0])
    )
    assert len(captured) == 1
    assert captured[0].options == {"in_turn": True}, "transfers of several calls at once"


@pytest.mark.cuda
@pytest.mark.on_device
def test_calls_that_are_streamed_take_turns(real_device, captured, problem, sky) -> None:
    """Two streams play all of them; what is on the device has a stream for each call. The same numbers."""
    rows = problem(n_antenna=3, n_time=4, n_chan=2)
    sources = sky(rows, n_batch=1)
    for options, n_stream in (({"memory_limit": 6000}, 2), ({}, 5)):
        kernels = [with_data(rows, **options) for _ in range(5)]
        expected = kernels[0].chi2(sources)
        for _ in range(3):
            for kernel in kernels:
                np.testing.assert_array_equal(kernel.chi2(sources), expected)
        assert len({int(each._queue.handle) for each in captured}) == n_stream
        assert len(captured) == 5
        captured.clear()


@pytest.mark.cuda
def test_gradients_in_pieces_are_captured(captured, problem, sky, reference, monkeypatch) -> None:
    """Where memory has no room for what sources leave of all rows, all pieces are recorded as one."""
    rows = problem(n_antenna=3, n_time=4, n_chan=2)
    sources = [sky(rows, n_batch=1, seed=seed) for seed in range(3)]
    # That one piece is right stands in `test_gradient_cuda`.
    whole = with_data(rows)
    expected = [whole.chi2_and_gradient(each)[1] for each in sources]
    captured.clear()
    kernel = with_data(rows)
    kernel.engine.work_budget = 8000  # type: ignore[attr-defined]
    n_piece = []
    launch = type(kernel.engine).launch_adjoint

    def counted(self: Any, *args: Any) -> Any:
        n_piece.append(len(args[3]))
        return launch(self, *args)

    monkeypatch.setattr(type(kernel.engine), "launch_adjoint", counted)
    for i in (0, 1, 2, 0):
        chi2, gradient = kernel.chi2_and_gradient(sources[i])
        # Explicit sums; sums in float64 in another order.
        wanted = chi2_of(rows, reference.visibilities(rows, LINEAR, sources[i]))
        np.testing.assert_allclose(chi2, wanted, rtol=1e-11)
        for name, values in vars(expected[i]).items():
            if values is not None:
                found, largest = getattr(gradient, name), np.abs(values).max(initial=0.0)
                np.testing.assert_allclose(found, values, rtol=0, atol=1e-9 * largest, err_msg=name)
    assert min(n_piece) > 1
    assert len(captured) == 1


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("form", "kind"),
    [
        pytest.param("factored", "none", marks=pytest.mark.on_device),
        pytest.param("factored", "cos3", marks=pytest.mark.thorough),
        pytest.param("row", "cos3", marks=pytest.mark.thorough),
    ],
)
def test_gradients_are_captured_beside_chi2(captured, problem, sky, beam_of, form, kind) -> None:
    """To the bit as at first; pointing errors have sums by antenna. Other data, between, are not played."""
    kernel = with_data(small(problem), form=form)
    rows = kernel.rows
    beam = None if kind == "none" else beam_of(rows, kind, n_batch=2)
    sources = [sky(rows, n_batch=2, seed=seed, beam=beam) for seed in range(3)]
    first = [with_data(rows, form=form).chi2_and_gradient(each) for each in sources]
    for turn in range(3):
        for each, (chi2, gradient) in zip(sources, first, strict=True):
            found, slope = kernel.chi2_and_gradient(each)
            np.testing.assert_array_equal(found, chi2)
            for name, values in vars(gradient).items():
                np.testing.assert_array_equal(getattr(slope, name), values, err_msg=name)
            np.testing.assert_array_equal(kernel.chi2(each), chi2)
        assert len(captured) == (4 if turn == 2 else 2)
        if turn == 1:
            half = kernel.adjoint(sources[0], kernel.residual(sources[0]))
            expected = first[0][1].lm
            # Data that are sent anew have rounding of their own.
            np.testing.assert_allclose(2.0 * half.lm, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


@pytest.mark.cuda
@pytest.mark.on_device
def test_batches_and_variants_and_predict_between(captured, problem, sky) -> None:
    kernel = with_data(small(problem))
    rows = kernel.rows
    full = sky(rows, n_batch=4, n_point=1, n_gaussian=1)
    kinds = {
        "gaussian": full,
        "points": sky(rows, n_batch=4, n_point=2, n_gaussian=0),
        "total": sky(rows, n_batch=4, n_point=1, n_gaussian=1, stokes=full.stokes * [1, 0, 0, 0]),
    }
    first = {}
    for name, each in kinds.items():
        alone = with_data(rows)
        first[name] = alone.chi2(each), alone.predict(each)
    rng = np.random.default_rng(1)
    for _ in range(4 if device.simulated() else 40):
        name = rng.choice(list(kinds))
        for n_batch in rng.choice([1, 2, 4], 3):
            entries = rng.choice(4, n_batch, replace=False)
            for _ in range(2):
                found = kernel.chi2(some(kinds[name], entries))
                np.testing.assert_array_equal(found, first[name][0][entries])
        other = rng.choice(list(kinds))
        np.testing.assert_array_equal(kernel.predict(some(kinds[other], [1])), first[other][1][[1]])
    assert len(captured) > 3


@pytest.mark.cuda
def test_a_graph_outlives_no_array_of_its_own(captured, problem, sky) -> None:
    """predict of another type makes arrays small again; what is recorded next lets them grow."""
    kernel = with_data(small(problem))
    sources = sky(kernel.rows, n_batch=4)
    total = sky(kernel.rows, n_batch=1, stokes=sources.stokes[:1] * [1, 0, 0, 0])
    expected = with_data(kernel.rows).chi2(sources)
    one, four = some(sources, [2]), some(sources, [0, 1, 2, 3])
    for each in (one, one, four, four):
        kernel.chi2(each)
    kernel.predict(total)
    for each, entries in ((one, [2]), (four, [0, 1, 2, 3]), (one, [2]), (four, [0, 1, 2, 3])):
        np.testing.assert_array_equal(kernel.chi2(each), expected[entries])


@pytest.mark.cuda
def test_several_at_once(captured, problem, sky) -> None:
    """Two observations interleaved; and one with two parameter vectors, begun before the first is fetched."""
    rows = small(problem)
    kernels = [with_data(rows, seed) for seed in (1, 2)]
    skies = [sky(rows, n_batch=2, seed=seed) for seed in (3, 4)]
    expected = {(k, s): with_data(rows, k + 1).chi2(skies[s]) for k in (0, 1) for s in (0, 1)}
    for _ in range(2 if device.simulated() else 4):
        for order in ([(0, 0), (1, 1)], [(1, 0), (0, 1)], [(0, 0), (0, 1), (1, 1), (0, 0)]):
            found = chi2_many([kernels[k] for k, _ in order], [skies[s] for _, s in order])
            for each, pair in zip(found, order, strict=True):
                np.testing.assert_array_equal(each, expected[pair])
    assert len(captured) == 2


@pytest.mark.cuda
def test_two_threads(captured, problem, sky) -> None:
    """The second thread has never seen the device when it plays what the first one recorded."""
    rows = small(problem)
    kernels = [with_data(rows, seed) for seed in (1, 2)]
    sources = [some(sky(rows, n_batch=3), [b]) for b in range(3)]
    expected = [[with_data(rows, seed).chi2(each) for each in sources] for seed in (1, 2)]
    for kernel in kernels:
        for each in sources:
            kernel.chi2(each)
    wrong: list[Any] = []

    def work(offset: int) -> None:
        try:
            for i in range(4):
                k, s = (i + offset) % 2, (i * 2 + offset) % 3
                np.testing.assert_array_equal(kernels[k].chi2(sources[s]), expected[k][s])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]
    assert len(captured) == 2


@pytest.mark.cuda
def test_without_room_for_a_graph_it_goes_step_by_step(cuda_backend, problem, sky, monkeypatch) -> None:
    kernel = with_data(small(problem))
    sources = sky(kernel.rows)
    expected = kernel.chi2(sources)

    def capture(*_: Any, **__: Any) -> Any:
        raise device.DeviceMemoryError("the device has no room for 1 MB")

    monkeypatch.setattr(device, "capture", capture)
    for _ in range(3):
        np.testing.assert_array_equal(kernel.chi2(sources), expected)


@pytest.mark.cuda
def test_nan_in_a_graph_stays_there(captured, problem, sky) -> None:
    kernel = with_data(small(problem))
    good = sky(kernel.rows, n_batch=3)
    expected = kernel.chi2(good)
    for _ in range(2):
        bad = good.copy()
        bad.lm[1, 0, 0] = np.nan
        bad.shape[2, 0, 0] = -1.0
        np.testing.assert_array_equal(kernel.chi2(bad), [expected[0], np.nan, np.nan])
        np.testing.assert_array_equal(kernel.chi2(good), expected)
    assert len(captured) == 1


# ---- memory


def host_bytes() -> int:
    """Resident set of this process."""
    return next(int(line.split()[1]) << 10 for line in STATUS.open() if line.startswith("VmRSS"))


def device_bytes() -> int:
    free, total = device.cuda.current_context().get_memory_info()
    return int(total - free)


def grown(work: Callable[[int], Any], n_call: int, used: Callable[[], int]) -> int:
    """Bytes more after many calls than after the first tenth of them."""
    for i in range(n_call // 10):
        work(i)
    before = used()
    for i in range(n_call):
        work(i)
    return used() - before


@pytest.mark.skipif(not STATUS.exists(), reason="the system does not tell how large a process is")
def test_cpu_memory_does_not_grow(problem, sky) -> None:
    kernel = with_data(small(problem), backend="cpu")
    sources = [sky(kernel.rows, n_batch=n_batch) for n_batch in (1, 3)]
    # A page that is kept at each call would be 40 MB.
    assert grown(lambda i: kernel.chi2(sources[i % 2]), 10000, host_bytes) < 2 << 20
    assert grown(lambda i: kernel.predict(sources[i % 2]), 3000, host_bytes) < 2 << 20


@pytest.fixture
def real_device(cuda_backend) -> None:
    if device.simulated():
        pytest.skip("simulated: there is no device whose memory could grow, and 1e5 calls take hours")


@pytest.mark.alone
@pytest.mark.cuda
def test_device_memory_does_not_grow(real_device, problem, sky) -> None:
    """Other programs on the device would be counted, too."""
    kernel = with_data(small(problem))
    sources = [sky(kernel.rows, n_batch=n_batch) for n_batch in (1, 3)]
    assert grown(lambda i: kernel.chi2(sources[i % 2]), 100000, device_bytes) == 0
    assert grown(lambda i: kernel.chi2(sources[i % 2]), 10000, host_bytes) < 2 << 20
    assert grown(lambda i: kernel.predict(sources[i % 2]), 2000, device_bytes) == 0


@pytest.mark.alone
@pytest.mark.cuda
@pytest.mark.parametrize("used", [device_bytes, host_bytes])
def test_capturing_anew_does_not_grow(real_device, problem, sky, used) -> None:
    """Other variants between make room for themselves: each pair of calls is recorded anew."""
    kernel = with_data(small(problem))
    skies = [sky(kernel.rows, n_gaussian=n) for n in (0, 2)]

    def work(i: int) -> None:
        for _ in range(3):
            kernel.chi2(skies[i % 2])

    # A recording takes some 10 kB here and there; the host's allocator keeps some pages.
    assert grown(work, 1000, used) < 4 << 20
