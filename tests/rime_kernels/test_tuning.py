"""Tuning: which shapes are measured and remembered; no shape changes an answer. Times are made up here."""

import dataclasses
import json
import logging
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from rime_kernels import BackendError, InputError, Rime, device, tuning
from rime_kernels.compile import sources
from rime_kernels.cuda.kernels.rows.parts import RowShape
from rime_kernels.cuda.kernels.tiles.parts import TileShape
from rime_kernels.cuda.launch_shapes import choice, records, tuning_file
from rime_kernels.cuda.launch_shapes.candidates import FAMILIES, all_kinds, fits, guess, neighbours
from rime_kernels.cuda.launch_shapes.cells import CellShape, estimated, kind_of, n_thread
from rime_kernels.cuda.launch_shapes.choice import (
    Size,
    cells_of,
    flagging_shape,
    forced,
    row_shape,
    tile_shape,
)
from rime_kernels.cuda.launch_shapes.families import MODEL, Kernel, KernelKind
from rime_kernels.cuda.launch_shapes.flagging import (
    MEDIAN,
    NOISE,
    RUNS,
    TRANSPOSITION,
    MedianShape,
    NoiseShape,
    RunShape,
    TransposeShape,
)
from rime_kernels.cuda.launch_shapes.model import antenna_class, fitted, shared_bytes
from rime_kernels.flagging.options import SpectrumOptions
from rime_kernels.inputs import Variant
from rime_kernels.tuning import search, trial

CLOCK = os.devnull
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
KINDS = all_kinds()
ROWS = next(kind for kind in KINDS if kind.kernel == "rows" and kind.has_gaussian)
FLAGGING = [kind for kind in KINDS if kind.kernel not in MODEL and not kind.support]
GRIDDING = [kind_of(31, 2, False, degrids=True), kind_of(7, 4, False, degrids=False)]
LARGE = Size(64, 1e9)
SINGLE = Variant(single=True, factored=True, beam=0, polarised=True)


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    """A file to remember in, as on a machine with a GPU, in a process that knows nothing yet.

    Every search begins at 256 threads, on whose ladder 192, 160 and 128 come next.
    """
    path = tmp_path / "cache" / "tuning.json"
    monkeypatch.setenv("BIRO_TUNING", str(path))
    monkeypatch.setattr(device, "simulated", lambda: False)
    monkeypatch.setattr(device, "device_name", lambda: "GPU 1")
    monkeypatch.setattr(device, "capability", lambda: (7, 0))  # no tensor cores, so all kinds
    monkeypatch.setattr(device, "resolve", lambda _: ("cuda", "cuda: found GPU 1"))
    start = TileShape(3, 256, 16, 96, 8, 128)
    tiles = dataclasses.replace(FAMILIES["tiles"], guess=lambda kind: fitted(kind, start))
    monkeypatch.setitem(FAMILIES, "tiles", tiles)
    forget()
    yield path
    forget()


def forget() -> None:
    """As in a new process."""
    records.on_record.cache_clear()
    records.here.cache_clear()
    choice.recommend_tuning.cache_clear()


def made_up(monkeypatch, best: int = 128, broken: tuple[int, ...] = ()) -> list[Any]:
    """Times that grow with the distance of a block's threads from `best`; the list of what was tried."""
    tried = []

    def milliseconds(kind: Any, clock: str) -> float:
        shape = choice.forced_shapes[kind.kernel]
        tried.append((kind, shape))
        names = {"rows": "n_row", "transposition": "n_each", "noise": "n_each"}
        names |= dict.fromkeys(("degridder", "gridder"), "m_x")
        n_thread = getattr(shape, names.get(kind.kernel, "n_thread"))
        if n_thread in broken:
            raise RuntimeError("too many resources requested for launch")
        return 1.0 + abs(math.log(n_thread / best))

    monkeypatch.setattr(trial, "milliseconds", milliseconds)
    return tried


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_guesses_and_what_is_tried_can_run_anywhere(kind) -> None:
    assert fits(kind, guess(kind))
    found = list(neighbours(kind, guess(kind)))
    # Registers bound the cells of a thread, and threads a block: these two have three shapes in all.
    is_large = (kind.support, kind.n_plane, kind.single) == (64, 4, False)
    assert len(found) >= (2 if is_large else 3)
    assert len(set(found)) == len(found)
    for shape in found:
        assert shape != guess(kind)
        assert fits(kind, shape)
        if kind.kernel in MODEL:
            assert shared_bytes(kind, shape) <= 49152, "what a CUDA kernel may declare"


@pytest.mark.parametrize(
    "change",
    [
        {"chunk": 64},  # 48 KB are not enough for it
        {"n_slot": 97},  # no multiple of the side
        {"n_thread": 250},  # no multiple of a warp
        {"n_thread": 512, "max_register": 160},  # 81920 registers of 65536
        {"n_thread": 512, "max_register": 0},  # the compiler may want 255 for each
        {"n_item": 0},
        {"max_register": 300},
    ],
)
def test_what_may_not_run_is_refused(change) -> None:
    shape = TileShape(3, 256, 16, 96, 8, 128)
    assert fits(KINDS[0], shape)
    assert not fits(KINDS[0], dataclasses.replace(shape, **change))


def test_rows_that_lose_precision_or_a_sum_are_refused() -> None:
    kind = next(kind for kind in KINDS if kind.kernel == "rows")
    assert fits(kind, RowShape(128, 8))
    assert not fits(kind, RowShape(128, 16)), "16 turns of a phase: more than 1e-6 in single precision"
    assert not fits(kind, RowShape(96, 8)), "the tree of sums halves"


def test_squares_that_cannot_be_shared_evenly_are_refused() -> None:
    assert fits(TRANSPOSITION, TransposeShape(32, 1, 16))
    assert not fits(TRANSPOSITION, TransposeShape(32, 1, 3)), "threads of 3 numbers leave some of 32"
    assert not fits(TRANSPOSITION, TransposeShape(64, 1, 2)), "2048 threads"
    assert not fits(TRANSPOSITION, TransposeShape(128, 1, 16)), "66 KB of shared memory"


def test_flagging_in_shapes_that_cannot_run_is_refused() -> None:
    assert fits(NOISE, NoiseShape(64, 3))
    assert not fits(NOISE, NoiseShape(128, 1)), "128 of at most 64 registers, where a block has 1024 threads"
    assert not fits(NOISE, NoiseShape(32, 0)), "no end"
    assert fits(RUNS, RunShape(512, 15))
    assert not fits(RUNS, RunShape(512, 23)), "51 KB of shared memory"
    assert not fits(RUNS, RunShape(64, 32)), "more samples than an integer has bits beside its sign"
    assert not fits(RUNS, RunShape(48, 15)), "no multiple of a warp"
    assert not fits(MEDIAN, MedianShape(48, 256)), "no multiple of a warp"


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
@pytest.mark.parametrize(
    ("kind", "field", "guessed", "best"),
    [
        (TRANSPOSITION, "n_each", 4, 8),
        (NOISE, "n_each", 32, 16),
        (RUNS, "n_thread", 128, 256),
        (MEDIAN, "n_thread", 64, 128),
    ],
    ids=str,
)
def test_flagging_has_the_shape_on_record(file, monkeypatch, kind, field, guessed, best) -> None:
    of = FAMILIES[kind.kernel].shape
    assert getattr(flagging_shape(kind, of), field) == guessed
    made_up(monkeypatch, best=best)
    tuning.tune("single", quick=True)
    forget()
    assert getattr(flagging_shape(kind, of), field) == best


def test_every_kernel_has_one_entry_and_one_trial() -> None:
    assert set(FAMILIES) == set(trial.TRIALS) == set(get_args(Kernel))
    for kernel, family in FAMILIES.items():
        assert family.kinds
        assert {kind.kernel for kind in family.kinds} == {kernel}
        assert set(family.ladders) <= {field.name for field in dataclasses.fields(family.shape)}


@pytest.mark.parametrize(
    ("kernel", "module"),
    [
        ("tiles", "cuda/kernels/tiles/kernel.py"),
        ("rows", "cuda/kernels/rows/kernel.py"),
        ("transposition", "flagging/cuda/transposition.py"),
        ("running median", "flagging/cuda/medians.py"),
        ("noise", "flagging/cuda/median_search.py"),
        ("SumThreshold", "flagging/cuda/sums.py"),
        ("degridder", "wprojection/cuda/cells.py"),
        ("gridder", "wprojection/cuda/cells.py"),
    ],
)
def test_a_record_holds_for_the_text_of_its_kernel(monkeypatch, tmp_path, kernel, module) -> None:
    """And outlives changes of kernels that have nothing to do with it, as those of gridding."""
    for name in (module, "gridding/cuda/planes.py", "compile/sources.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.setattr(device, "device_name", lambda: "GPU 1")
    digests = []
    for name in (None, "gridding/cuda/planes.py", module):
        if name:
            (tmp_path / name).write_text("after")
        records.here.cache_clear()
        digests.append(records.here(kernel)["kernels"])
    records.here.cache_clear()
    assert digests[0] == digests[1] != digests[2]


def test_too_large_a_shape_is_cut_to_fit() -> None:
    for kind in KINDS:
        if kind.kernel == "tiles":
            assert fits(kind, fitted(kind, TileShape(4, 256, 32, 192, 16)))


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_the_search_walks_to_the_best_and_drops_what_fails(file, monkeypatch) -> None:
    kind = KINDS[0]
    made_up(monkeypatch, best=128)
    assert search.fastest_shape(kind, patience=math.inf, max_step=4, clock=CLOCK).shape.n_thread == 128
    assert search.fastest_shape(kind, patience=math.inf, max_step=1, clock=CLOCK).shape.n_thread == 192, (
        "one step is one rung"
    )
    made_up(monkeypatch, best=128, broken=(192,))
    assert search.fastest_shape(kind, patience=math.inf, max_step=4, clock=CLOCK).shape.n_thread == 256, (
        "what fails is no stepping stone"
    )
    made_up(monkeypatch, best=128, broken=(256,))
    best = search.fastest_shape(kind, patience=math.inf, max_step=1, clock=CLOCK)
    assert (best.shape.n_thread, best.guess_ms) == (192, math.inf)
    made_up(monkeypatch, broken=(192, 256, 320))
    assert search.fastest_shape(kind, patience=math.inf, max_step=4, clock=CLOCK) is None


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_noise_changes_nothing(file, monkeypatch) -> None:
    times = iter(np.random.default_rng(1).uniform(0.99, 1.0, 1000))
    monkeypatch.setattr(trial, "milliseconds", lambda *_: next(times))
    assert all(
        search.fastest_shape(kind, patience=math.inf, max_step=4, clock=CLOCK).shape == guess(kind)
        for kind in KINDS
    )


def test_one_process_measures_at_a_time(tmp_path, monkeypatch) -> None:
    """The others may compile: a first call waits for nobody."""
    clock = tmp_path / "clock"
    clock.touch()
    happened = []

    def call() -> None:
        happened.append(1)
        time.sleep(0.01)

    monkeypatch.setitem(trial.TRIALS, "noise", lambda kind: call)
    with ThreadPoolExecutor(1) as other, trial.locked(str(clock)):
        found = other.submit(trial.milliseconds, NOISE, str(clock))
        while not happened:  # a busy machine may take its time to begin
            time.sleep(0.001)
        time.sleep(0.1)
        assert len(happened) == 1, "compiled"
        assert not found.done()
    assert len(happened) > 3
    assert 10 <= found.result() < 300


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_patience_ends_a_search(file, monkeypatch) -> None:
    tried = made_up(monkeypatch)
    now = iter(range(0, 1000, 3))  # a trial takes 3 s
    monkeypatch.setattr(search.time, "perf_counter", lambda: float(next(now)))
    search.fastest_shape(KINDS[0], patience=8.0, max_step=1, clock=CLOCK)
    assert len(tried) == 3


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_tune_remembers_on_disk_for_this_device_alone(file, monkeypatch) -> None:
    made_up(monkeypatch, best=128)
    watched = []

    def each(search, kinds):
        watched.extend(kinds)
        return map(search, kinds[::-1])

    found = tuning.tune("single", each=each)
    assert [item.kind for item in found] == watched == all_kinds("single"), "in whatever order they come"
    made_up(monkeypatch, broken=tuple(range(1024)))
    forget()
    assert tile_shape(SINGLE, False, LARGE) == found[0].shape
    assert tile_shape(SINGLE, False).n_thread == 128, "a problem of unknown size is taken for large"
    double = dataclasses.replace(SINGLE, single=False)
    assert tile_shape(double, False) == guess(next(kind for kind in KINDS if not kind.single))
    monkeypatch.setattr(device, "device_name", lambda: "GPU 2")
    forget()
    assert tile_shape(SINGLE, False) == guess(KINDS[0])
    assert not list(file.parent.glob("*.tmp*"))
    assert tuning.saved(found) is None, "GPU 2 has none"
    monkeypatch.setattr(device, "device_name", lambda: "GPU 1")
    forget()
    assert tuning.saved(found) == file


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_tuning_again_replaces_the_records_and_keeps_those_of_others(file, monkeypatch) -> None:
    made_up(monkeypatch, best=128)
    tuning.tune()
    monkeypatch.setattr(device, "device_name", lambda: "GPU 2")
    forget()
    for best in (192, 256):
        made_up(monkeypatch, best=best)
        tuning.tune()
    on_disk = json.loads(file.read_text())["records"]
    assert len(on_disk) == 2 * len(KINDS)
    threads = {
        record["device"]: record["shape"]["n_thread"] for record in on_disk if record["kernel"] == "tiles"
    }
    assert threads == {"GPU 1": 128, "GPU 2": 256}


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_quick_tries_less(file, monkeypatch) -> None:
    tried = made_up(monkeypatch, best=64)
    tuning.tune("single", quick=True)
    n_quick = len(tried)
    tuning.tune("single")
    assert len(tried) > 2 * n_quick


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_a_call_measures_nothing_and_recommends_tuning_once(file, monkeypatch, caplog) -> None:
    tried = made_up(monkeypatch, best=128)
    with caplog.at_level(logging.INFO, "rime_kernels"):
        assert tile_shape(SINGLE, False, Size(64, 9e7)) == guess(KINDS[0])
        assert caplog.text == "", "a small problem gains nothing by tuning"
        assert tile_shape(SINGLE, False, LARGE) == guess(KINDS[0])
        row_shape(SINGLE, False, LARGE)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "kernels have not been tuned on GPU 1: `biro tune` may find faster shapes for them")
    ]
    assert tried == []
    assert not file.exists()


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_tuned_kernels_are_not_recommended_to_be_tuned(file, monkeypatch, caplog) -> None:
    made_up(monkeypatch, best=128)
    tuning.tune("single")
    forget()
    with caplog.at_level(logging.INFO, "rime_kernels"):
        assert tile_shape(SINGLE, False, LARGE).n_thread == 128
    assert caplog.text == ""


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_each_class_of_sizes_has_its_record(file, monkeypatch) -> None:
    tried = made_up(monkeypatch, best=128)
    tuning.tune("single")
    assert {kind.antennas for kind, _ in tried} == {"many", "few", "fewest", "most", "any"}
    stored = records.on_record(file)
    for n_antenna, antennas in ((7, "fewest"), (27, "few"), (64, "many"), (192, "most")):
        kind = KernelKind("tiles", True, True, False, antennas)
        assert tile_shape(SINGLE, False, Size(n_antenna, 1e9)) == stored[kind].shape


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_cells_of_a_thread_are_those_of_the_class(file, monkeypatch) -> None:
    """Where a block has threads for them: 33 x 33 of 2 x 2 cells are too many for a kernel of 64."""
    kind = kind_of(63, 1, False, degrids=True)
    assert kind == kind_of(64, 1, False, degrids=True) == kind_of(33, 1, False, degrids=True)
    assert kind != kind_of(32, 1, False, degrids=True)
    assert n_thread(63, 2, 2) == 32 * 32
    records.remember(tuning.Tuned(kind, CellShape(2, 2, 1), 1.0, 2.0))
    forget()
    for support in (33, 63):
        assert cells_of(support, 1, False, degrids=True) == CellShape(2, 2, 1)
    for other in ((64, 1, False, True), (63, 1, True, True), (63, 2, False, True), (63, 1, False, False)):
        *size, degrids = other
        assert cells_of(*size, degrids=degrids) == estimated(*size, degrids=degrids)


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_where_tensor_cores_grid_threads_are_tuned_in_double_precision_alone(file, monkeypatch) -> None:
    for capability, expected in (((7, 0), {True, False}), ((8, 0), {False})):
        tried = made_up(monkeypatch, best=128)
        monkeypatch.setattr(device, "capability", lambda capability=capability: capability)
        tuning.tune(quick=True)
        assert {kind.single for kind, _ in tried if kind.support} == expected


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_what_cannot_be_measured_leaves_no_record(file, monkeypatch, caplog) -> None:
    made_up(monkeypatch, broken=tuple(range(1024)))
    assert tuning.tune("single") == []
    assert "no shape could be measured" in caplog.text
    assert tile_shape(SINGLE, False, LARGE) == guess(KINDS[0])
    assert not file.exists()


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "something else", "records": []}', "\0\1"])
def test_a_broken_or_foreign_file_is_left_alone(file, monkeypatch, caplog, text) -> None:
    made_up(monkeypatch, best=128)
    file.parent.mkdir()
    file.write_text(text)
    tuning.tune("single", quick=True)
    assert "is not used" in caplog.text
    assert file.read_text() == text
    assert tile_shape(SINGLE, False).n_thread == 192, "this process remembers"


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
@pytest.mark.parametrize(
    "change",
    [
        {"shape": {"n_thread": 128}},
        {"shape": {"side": 3, "n_thread": 1 << 20, "chunk": 16, "n_slot": 96, "n_item": 8}},
        {"shape": {"side": 3, "n_thread": 128.5, "chunk": 16, "n_slot": 96, "n_item": 8}},
        {"shape": None},
        {"kernel": "pyramids"},
        {"ms": "fast"},
        {"ms": None},
        {"antennas": []},
    ],
)
def test_records_that_cannot_be_meant_do_not_count(file, monkeypatch, change) -> None:
    made_up(monkeypatch, best=128)
    tuning.tune("single")
    content = json.loads(file.read_text())
    content["records"][0].update(change)
    file.write_text(json.dumps(content))
    forget()
    assert tile_shape(SINGLE, False) == guess(KINDS[0])
    assert tile_shape(SINGLE, True).n_thread == 128, "the next record is in order"


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_records_from_before_kinds_had_supports_count(file, monkeypatch) -> None:
    made_up(monkeypatch, best=128)
    tuning.tune("single")
    content = json.loads(file.read_text())
    for record in content["records"]:
        del record["support"], record["n_plane"]
    file.write_text(json.dumps(content))
    forget()
    assert tile_shape(SINGLE, False).n_thread == 128


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_where_nothing_can_be_written_the_process_remembers(file, monkeypatch, caplog) -> None:
    made_up(monkeypatch, best=128)
    file.parent.write_text("no folder")
    tuning.tune("single", quick=True)
    assert "cannot be" in caplog.text
    assert tile_shape(SINGLE, False).n_thread == 192


@pytest.mark.skipif(SIMULATED, reason="the simulator has shapes of its own")
def test_off_is_off(file, monkeypatch) -> None:
    monkeypatch.setenv("BIRO_TUNING", "off")
    made_up(monkeypatch)
    assert tuning_file.location() is tuning.saved([]) is None
    tuning.tune("single", quick=True)
    assert tile_shape(SINGLE, False, LARGE) == guess(KINDS[0])


def test_where_the_file_is(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("BIRO_TUNING", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tuning_file.location() == tmp_path / "biro" / "tuning.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tuning_file.location() == tmp_path / ".cache" / "biro" / "tuning.json"


def test_without_a_device_there_is_nothing_to_tune(monkeypatch) -> None:
    monkeypatch.setattr(device, "resolve", lambda _: ("cpu", "cpu: no CUDA device was found"))
    with pytest.raises(BackendError, match="nothing to tune: cpu: no CUDA device"):
        tuning.tune()
    with pytest.raises(InputError, match="precision must be one of"):
        tuning.tune("half")


def test_the_table_says_what_was_gained() -> None:
    shape = TileShape(3, 128, 16, 96, 8, 128)
    tuned = [tuning.Tuned(KINDS[0], shape, 0.5, 0.6), tuning.Tuned(KINDS[1], shape, 0.5, math.inf)]
    head, first, second, last = tuning.table(tuned).splitlines()
    assert head.split() == ["kernel", "shape", "ms", "gain"]
    assert first.startswith("tiles, single, IQUV, points, many antennas  side 3, n_thread 128, ")
    assert first.split()[-2:] == ["0.5", "1.20"]
    assert second.split()[-1] == "-"
    assert last.split() == ["CPU,", "any", "nothing", "to", "tune", "-", "-"]


def test_sizes() -> None:
    assert [antenna_class(n) for n in (7, 17, 32, 33, 192)] == ["fewest", "few", "few", "many", "most"]


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("kernel", "shape"),
    [
        ("tiles", TileShape(1, 32, 8, 8, 2)),
        ("tiles", TileShape(3, 32, 4, 6, 1)),
        ("tiles", TileShape(4, 64, 32, 16, 4)),
        ("rows", RowShape(32, 1)),
        ("rows", RowShape(64, 2)),
    ],
)
@pytest.mark.parametrize("precision", ["single", "double"])
def test_no_shape_changes_the_answer(cuda_backend, problem, sky, reference, kernel, shape, precision) -> None:
    rows = problem(n_antenna=3, n_time=2, n_chan=2)
    shapes = rows.n_row, rows.n_chan, rows.n_corr
    rng = np.random.default_rng(4)
    options: dict[str, Any] = {
        "vis": rng.normal(size=shapes) + 1j,
        "weight": rng.uniform(0.5, 2.0, shapes),
        "extent": 0.04,
        "precision": precision,
        "form": "row" if kernel == "rows" else "factored",
    }
    sources = sky(rows)
    data = {name: options[name] for name in ("vis", "weight")}
    expected = reference.chi2(rows, ["XX", "XY", "YX", "YY"], sources, **data)
    with forced(kernel, shape):
        cuda = Rime(rows, backend="cuda", **options)
        plan, found = cuda.plan(sources), cuda.chi2(sources)
    assert (f"tiles of {shape.side} x {shape.side}" if kernel == "tiles" else "row by row") in plan
    # Sums in another order, sines of another library.
    np.testing.assert_allclose(found, expected, rtol=1e-11 if precision == "double" else 2e-6)


@pytest.mark.cuda
@pytest.mark.simulator
@pytest.mark.parametrize("polarised", [True, False])
@pytest.mark.parametrize("n_gaussian", [0, 2])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_shared_memory_is_what_the_kernel_declares(
    problem, sky, beam_of, monkeypatch, precision, n_gaussian, polarised
) -> None:
    """The sum over the arrays of a kernel with a beam, which has them all, as the simulator makes them."""
    from numba.cuda.simulator import kernelapi

    blocks: list[Any] = []
    begin = kernelapi.FakeCUDAShared.__init__
    monkeypatch.setattr(
        kernelapi.FakeCUDAShared, "__init__", lambda self, size: (blocks.append(self), begin(self, size))[1]
    )
    rows = problem(n_antenna=3, n_time=1, n_chan=1)
    sources = sky(rows, n_batch=1, n_gaussian=n_gaussian, beam=beam_of(rows, "cos3", n_batch=1))
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    shape = TileShape(2, 32, 4, 8, 2)
    data = np.ones((rows.n_row, 1, rows.n_corr))
    options: dict[str, Any] = {"vis": data, "weight": data, "extent": 0.04, "precision": precision}
    with forced("tiles", shape):
        Rime(rows, backend="cuda", form="factored", **options).chi2(sources)
    kind = KernelKind("tiles", precision == "single", polarised, n_gaussian > 0, "few")
    declared = [
        [array.nbytes for (file, _), array in block._allocations.items() if file.endswith("/tiles/kernel.py")]
        for block in blocks
    ]
    n_array, total = max((len(sizes), sum(sizes)) for sizes in declared)
    assert n_array == 19
    # Every array begins at a multiple of 16 bytes: each may lose 15.
    assert total <= shared_bytes(kind, shape) <= total + 15 * n_array


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [KINDS[0], ROWS, *FLAGGING, *GRIDDING], ids=str)
def test_the_trial_runs_in_the_shape_that_is_forced(cuda_backend, monkeypatch, kind) -> None:
    if SIMULATED:
        for name, value in {
            "_MATRIX": 6,
            "_SPECTRA": 2,
            "_SPECTRUM": 40,
            "_FLAGGED": SpectrumOptions(width=3, largest_window=2),
            "_CHAN": 2,
            "_GRIDDED": (3, 1),
            "_PIXELS": 16,
            "_SOURCE": 4,
            "_BATCH": 1,
            "_WARM": 1,
            "_CALLS": 1,
        }.items():
            monkeypatch.setattr(trial, name, value)
        monkeypatch.setattr(trial, "SIZES", {"many": (4, 1), "any": (4, 1), "most": (4, 1)})
    trial.make_problem.cache_clear()
    with forced(kind.kernel, guess(kind)):
        assert 0.0 < trial.milliseconds(kind, CLOCK) < math.inf
    trial.make_problem.cache_clear()
