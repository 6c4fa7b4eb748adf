"""Memory limits: the same answers whatever there is room for."""

import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rime_kernels import BackendError, InputError, Rime, Rows, Sources, check, device, stokes_to_corr
from rime_kernels.arrays import mapped
from rime_kernels.device import packages
from rime_kernels.device.kernels import WithSharedMemory
from tests.rime_kernels.problems import LINEAR, data_for, with_data

FORMS = ["factored", "row"]
# Where forms differ in nothing that a test is about, the simulator runs one.
FORMS_ON_DEVICE = ["factored", pytest.param("row", marks=pytest.mark.on_device)]


def several_slabs(problem: Any, form: str) -> Rows:
    """Rows for several of the smallest slabs that the form has; few, where each thread takes milliseconds."""
    if device.simulated():
        return problem(n_antenna=3, n_time=5 if form == "factored" else 12, n_chan=2)
    return problem(n_antenna=10, n_time=16, n_chan=2)


def skies(rows: Rows, sky: Any) -> list[Sources]:
    """Brightness that changes in time, and that does not; a batch of three."""
    each = sky(rows, n_batch=3, n_point=1, n_gaussian=1)
    return [each, sky(rows, n_batch=3, n_point=1, n_gaussian=1, stokes=each.stokes[:, :1])]


def data_of(rime: Rime) -> Any:
    """What the engine keeps of the data; after a call of chi2 or plan."""
    (data,) = rime.engine.data.held.values()  # type: ignore[attr-defined]
    return data


_WHOLE: dict[str, tuple[Rime, list[Sources], list[Any]]] = {}


@pytest.fixture
def whole(cuda_backend, problem, sky, request) -> tuple[Rime, list[Sources], list[Any]]:
    """Without a limit: the call, two skies and its answers to them; made once for each form."""
    if request.param not in _WHOLE:
        rime = with_data(several_slabs(problem, request.param), form=request.param)
        sources = skies(rime.rows, sky)
        _WHOLE[request.param] = rime, sources, [answer(rime, each) for each in sources]
        assert data_of(rime).resident
    return _WHOLE[request.param]


def answer(rime: Rime, sources: Sources) -> tuple[np.ndarray, np.ndarray]:
    return rime.chi2(sources), rime.predict(sources)


def assert_same(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> None:
    """To the bit: what is summed together, and in which order, depends on the rows alone."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


# ---- limits


@pytest.mark.cuda
@pytest.mark.parametrize("whole", FORMS_ON_DEVICE, indirect=True)
def test_without_a_limit_it_is_the_explicit_sum(whole, reference, error_of) -> None:
    rime, sources, answers = whole
    for each, (chi2, vis) in zip(sources, answers, strict=True):
        expected = reference.visibilities(rime.rows, LINEAR, each)
        # Phases of some 100 turns, each rounded to 1e-16 of that here and in the reference.
        assert error_of(vis, expected) < 1e-12
        given = data_for(rime.rows)
        square = given["weight"] * np.abs(expected - given["vis"]) ** 2
        np.testing.assert_allclose(chi2, square.sum(axis=(1, 2, 3)), rtol=1e-12)


@pytest.mark.cuda
@pytest.mark.parametrize("whole", FORMS_ON_DEVICE, indirect=True)
def test_data_in_files_change_no_bit(whole, tmp_path, monkeypatch) -> None:
    """They are streamed from there, and nothing of them is copied into pinned memory."""
    rime, sources, answers = whole
    monkeypatch.setattr(mapped, "LEAST_BYTES", 0)
    monkeypatch.setattr(device, "pinned_copy", None)
    kept = with_data(rime.rows, form=rime.form, memory_limit=1, folder=str(tmp_path))
    np.testing.assert_array_equal(kept.chi2(sources[0]), answers[0][0])
    assert not data_of(kept).resident


@pytest.mark.cuda
@pytest.mark.parametrize("whole", FORMS_ON_DEVICE, indirect=True)
@pytest.mark.parametrize(
    "share",
    [pytest.param(0.0, marks=pytest.mark.on_device), pytest.param(0.5, marks=pytest.mark.on_device), 1.5],
)
def test_no_limit_changes_a_bit(whole, share) -> None:
    """Nothing fits but the smallest steps; half of the data; the data, and little beside."""
    rime, sources, answers = whole
    n_byte = data_of(rime).n_byte
    limited = with_data(rime.rows, form=rime.form, memory_limit=max(1, int(share * n_byte)))
    for each, expected in zip(sources, answers, strict=True):
        assert_same(answer(limited, each), expected)
    np.testing.assert_array_equal(limited.chi2(sources[1]), answers[1][0])
    data, plan = data_of(limited), limited.plan(sources[0])
    if share > 1:
        assert data.resident
        assert "on the device" in plan
        return
    assert not data.resident
    assert len(data.slabs) > 2
    assert f"streamed in {len(data.slabs)} slabs" in plan
    assert data.slabs[0].place.start == 0
    assert data.slabs[-1].place.stop == rime.rows.n_row
    assert all(before.place.stop == after.place.start for before, after in pairwise(data.slabs))


@pytest.mark.cuda
@pytest.mark.on_device
@pytest.mark.parametrize("whole", FORMS, indirect=True)
def test_batches_of_any_size_have_the_answers_of_their_entries(whole) -> None:
    rime, (sources, _), ((chi2, vis), _) = whole
    streamed = with_data(rime.rows, form=rime.form, memory_limit=data_of(rime).n_byte // 2)
    for kernel in (rime, streamed):
        for entries in ([0], [2, 1], [1, 0, 2, 2, 0]):
            some = Sources(
                *(sources.lm[entries], sources.stokes[entries], sources.ref_freq),
                *(sources.spectral_terms[entries], sources.log_spectrum, sources.shape[entries]),
            )
            assert_same(answer(kernel, some), (chi2[entries], vis[entries]))


@pytest.mark.cuda
def test_the_plan_says_how_the_batch_is_cut(cuda_backend, problem, sky) -> None:
    rows = several_slabs(problem, "factored")
    sources = sky(rows, n_batch=100, n_point=1, n_gaussian=0, stokes=np.ones((100, 1, 1, 4)))
    found = with_data(rows).plan(sources)
    assert "batch of 100 in steps of 100, 1 launches each" in found
    narrow = with_data(rows, memory_limit="4 kB").plan(sources)
    step = int(re.search(r"batch of 100 in steps of (\d+)", narrow)[1])
    assert step < 100


@pytest.mark.cuda
@pytest.mark.parametrize("form", FORMS)
def test_crowded_times_keep_within_the_limit(cuda_backend, sky, form) -> None:
    """Most rows at one time, many times over: a slab of few times may hold nearly all."""
    n_antenna, n_many = 4, 30 if device.simulated() else 600
    rng = np.random.default_rng(2)
    first, second = np.triu_indices(n_antenna, 1)
    time = np.concatenate([np.full(n_many, 20), np.arange(40)])
    pair = rng.integers(0, first.size, time.size)
    position = rng.normal(size=(40, n_antenna, 3)) * 500
    p, q = first[pair], second[pair]
    uvw = position[time, p] - position[time, q]
    rows = Rows(uvw, p, q, time, [1e9], stokes_to_corr(["I"]), n_antenna, 40)
    sources = sky(rows, n_batch=1, n_point=1, n_gaussian=0, stokes=np.ones((1, 1, 1, 4)))
    rime = with_data(rows, form=form)
    expected = rime.chi2(sources)
    n_byte = data_of(rime).n_byte
    limited = with_data(rows, form=form, memory_limit=int(0.9 * n_byte))
    np.testing.assert_array_equal(limited.chi2(sources), expected)
    data = data_of(limited)
    layout = data.layout
    item = n_byte / layout.n_datum(layout.slab(0, layout.n_unit))
    # Two buffers share what data may take; one unit of the layout is the least there is.
    for slab in data.slabs:
        assert (
            2 * item * layout.n_datum(slab) <= 0.9 * n_byte
            or slab.unit.stop - slab.unit.start <= layout.unit_step
        )


@pytest.mark.cuda
@pytest.mark.parametrize("whole", FORMS_ON_DEVICE, indirect=True)
def test_brightness_of_many_times_is_cut_where_the_data_are_not(whole) -> None:
    rime, (sources, _), (expected, _) = whole
    other = with_data(rime.rows, form=rime.form)
    other.engine.work_budget = 600  # type: ignore[attr-defined]
    assert_same(answer(other, sources), expected)
    plan = other.plan(sources)
    assert "on the device" in plan
    assert int(re.search(r"(\d+) launches each", plan)[1]) > 1


# ---- no room


class SmallDevice:
    """Refuses arrays of data, and those of the work that have a name, above so many bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, data: float = np.inf, **work: float) -> None:
        self.refused: list[float] = []
        given_array, given_empty = device.Workspace.array, device.empty

        def array(workspace: Any, name: str, shape: tuple[int, ...], dtype: type) -> Any:
            self._check(float(np.prod(shape)) * np.dtype(dtype).itemsize, work.get(name, np.inf))
            return given_array(workspace, name, shape, dtype)

        def empty(shape: Any, dtype: Any) -> Any:
            self._check(float(np.prod(shape)) * np.dtype(dtype).itemsize, data)
            return given_empty(shape, dtype)

        monkeypatch.setattr(device.Workspace, "array", array)
        monkeypatch.setattr(device, "empty", empty)

    def _check(self, n_byte: float, limit: float) -> None:
        if n_byte > limit:
            self.refused.append(n_byte)
            raise device.DeviceMemoryError(f"the device has no room for {n_byte} bytes")


@pytest.mark.cuda
@pytest.mark.parametrize("whole", FORMS_ON_DEVICE, indirect=True)
def test_work_that_does_not_fit_is_cut(whole, monkeypatch) -> None:
    rime, sources, answers = whole
    small = with_data(rime.rows, form=rime.form)
    layout = data_of(rime).layout
    room = SmallDevice(monkeypatch, sums=8 * 1.5 * layout.n_sum)
    np.testing.assert_array_equal(small.chi2(sources[1]), answers[1][0])
    assert max(room.refused) == 3 * 8 * layout.n_sum
    room.refused.clear()
    np.testing.assert_array_equal(small.chi2(sources[1]), answers[1][0])
    assert not room.refused, "what did not fit once is not tried again"


@pytest.mark.cuda
@pytest.mark.parametrize("whole", FORMS_ON_DEVICE, indirect=True)
def test_visibilities_that_do_not_fit_are_cut(whole, monkeypatch) -> None:
    rime, sources, answers = whole
    small = with_data(rime.rows, form=rime.form)
    room = SmallDevice(monkeypatch, vis=answers[0][1][0].nbytes / 2)
    for each, expected in zip(sources, answers, strict=True):
        assert_same((small.predict(each),), expected[1:])
    assert answers[0][1][0].nbytes in room.refused


@pytest.mark.cuda
@pytest.mark.parametrize("whole", FORMS_ON_DEVICE, indirect=True)
def test_data_that_do_not_fit_are_streamed(whole, monkeypatch) -> None:
    rime, sources, answers = whole
    small = with_data(rime.rows, form=rime.form)
    room = SmallDevice(monkeypatch, data=data_of(rime).n_byte / 4)
    assert "streamed in" in small.plan(sources[0])
    assert room.refused
    for each, expected in zip(sources, answers, strict=True):
        assert_same(answer(small, each), expected)


@pytest.mark.cuda
@pytest.mark.parametrize("whole", FORMS_ON_DEVICE, indirect=True)
def test_data_make_room_for_the_work(whole, monkeypatch) -> None:
    """No work at all fits beside the data: smaller steps alone would not help."""
    rime, sources, answers = whole
    small = with_data(rime.rows, form=rime.form)
    given = device.Workspace.array

    def array(workspace: Any, *args: Any) -> Any:
        if data_of(small).resident:
            raise device.DeviceMemoryError("the device has no room for 1 MB")
        return given(workspace, *args)

    monkeypatch.setattr(device.Workspace, "array", array)
    np.testing.assert_array_equal(small.chi2(sources[0]), answers[0][0])
    assert not data_of(small).resident


@pytest.mark.cuda
@pytest.mark.parametrize("form", FORMS)
def test_a_device_too_small_says_so(cuda_backend, problem, sky, monkeypatch, form) -> None:
    for room in ({"sums": 0}, {"data": 0}):
        rime = with_data(problem(n_antenna=3, n_time=2, n_chan=2), form=form)
        with monkeypatch.context() as context:
            SmallDevice(context, **room)
            with pytest.raises(
                BackendError, match=r"no room for .* bytes, and the work cannot be cut smaller"
            ):
                rime.chi2(sky(rime.rows))


# ---- what a limit may be


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1, 1),
        (8_000_000_000, 8 * 10**9),
        ("8 GB", 8 * 10**9),
        ("8GB", 8 * 10**9),
        (" 512 MiB ", 512 * 2**20),
        ("1.5 kB", 1500),
        ("1e3", 1000),
        ("1e3 B", 1000),
        ("2 tib", 2 * 2**40),
        ("0.5KiB", 512),
        (np.int64(7), 7),
    ],
)
def test_bytes_in_numbers_and_text(given, expected) -> None:
    assert check.n_byte("memory_limit", given) == expected


@pytest.mark.parametrize(
    "given",
    [0, -1, "", "GB", "8 G", "8 GBB", "8 GB 1", "-8 GB", "0 B", "0.1 B", "nan", "inf GB", "1e400 B", "8,5 GB",
     True, False, None, [8], float("nan"), float("inf"), object()],
)  # fmt: skip
def test_nonsense_for_bytes_is_refused(given) -> None:
    with pytest.raises(InputError, match='memory_limit must be bytes, or text such as "8 GB" or "512 MiB"'):
        check.n_byte("memory_limit", given)


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_limit_is_text_or_a_number(problem, sky, backend, request) -> None:
    if backend == "cuda":
        request.getfixturevalue("cuda_backend")
    rows = problem(n_antenna=3, n_time=2, n_chan=2)
    sources = sky(rows)
    expected = with_data(rows, backend=backend).chi2(sources)
    for limit in (300, "2 kB", "1 GB"):
        found = with_data(rows, backend=backend, memory_limit=limit).chi2(sources)
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(InputError, match="memory_limit must be bytes"):
        with_data(rows, backend=backend, memory_limit="much")


def test_every_device_is_told_of_a_kernels_shared_memory(monkeypatch) -> None:
    """A kernel has one handle on all devices, and each of them limits what it may ask for."""
    told = []

    class Driver:
        binding = SimpleNamespace(
            CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="most")
        )
        driver = SimpleNamespace(cuKernelSetAttribute=lambda *given: told.append(given))

    monkeypatch.setattr(packages, "numba_driver", lambda: Driver)
    kernel = WithSharedMemory(None, 65536)
    for number in (0, 1, 0, 1):
        function = SimpleNamespace(handle=7, device=SimpleNamespace(id=number))
        library = SimpleNamespace(get_cufunc=lambda function=function: function)
        kernel._tell(SimpleNamespace(_codelibrary=library), None)
    assert told == [("most", 65536, 7, 0), ("most", 65536, 7, 1)]
