"""The batching pool: same answers whatever the threads do, few calls, no deadlock."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from biro.errors import BiroError, InputError
from biro.inference.target.batching import BatchingPool, ask


def paraboloid(rows):
    return -np.sum(rows**2, axis=1)


def walk(seed):
    """A short chain of a length that depends on the seed, with delays that do not."""
    rng = np.random.default_rng(seed)
    jitter = np.random.default_rng()
    total = 0.0
    for _ in range(5 + seed % 7):
        time.sleep(jitter.uniform(0, 1e-3))
        total += ask(rng.random(3))
    return seed, total


def serial(seed):
    rng = np.random.default_rng(seed)
    return seed, float(sum(paraboloid(rng.random((1, 3)))[0] for _ in range(5 + seed % 7)))


def recorded(size, seeds):
    batches, threads = [], set()

    def evaluate(rows):
        batches.append(rows.copy())
        threads.add(threading.get_ident())
        return paraboloid(rows)

    with BatchingPool(evaluate, size) as pool:
        return pool.map(walk, seeds), batches, threads, pool


def test_results_are_those_of_a_loop_in_order():
    results, *_ = recorded(16, range(40))
    for found, expected in zip(results, (serial(seed) for seed in range(40)), strict=True):
        assert found[0] == expected[0]
        # Sums of up to 11 numbers of order 1, in the same order: equal to rounding.
        assert found[1] == pytest.approx(expected[1], rel=1e-14)


def test_batches_do_not_depend_on_thread_timing():
    first, second = recorded(16, range(40))[1], recorded(16, range(40))[1]
    assert len(first) == len(second)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_many_rows_in_few_calls_on_the_calling_thread():
    _, batches, threads, pool = recorded(32, range(32))
    assert threads == {threading.get_ident()}
    # 32 chains of 5 to 11 steps: as many calls as the longest chain has steps.
    assert pool.n_call == len(batches) == 11
    assert pool.n_row == sum(5 + seed % 7 for seed in range(32))


@pytest.mark.parametrize("where", ["task", "evaluate"])
def test_an_error_ends_every_task_and_the_pool_goes_on(where):
    ended = []

    def task(i):
        try:
            for _ in range(3):
                ask(np.array([float(i)]))
            if where == "task" and i in (3, 5):
                raise ValueError(f"task {i}")
            for _ in range(100):
                ask(np.array([float(i)]))
        finally:
            ended.append(i)

    def evaluate(rows):
        if where == "evaluate" and pool.n_call == 3:
            raise ValueError("evaluate")
        return rows[:, 0]

    with BatchingPool(evaluate, 8) as pool:
        with pytest.raises(ValueError, match="task 3" if where == "task" else "evaluate"):
            pool.map(task, range(8))
        assert sorted(ended) == list(range(8))
        pool.n_call = 100
        assert pool.map(lambda i: ask(np.array([2.0 * i])), range(8)) == [2.0 * i for i in range(8)]


def test_a_task_that_uses_its_own_pool_is_an_error_and_no_deadlock():
    with BatchingPool(paraboloid, 4) as pool:
        with pytest.raises(RuntimeError):
            pool.map(lambda i: pool.map(lambda j: j, [i]), range(2))
        assert pool.map(lambda i: i + 1, range(4)) == [1, 2, 3, 4]


def test_tasks_that_never_ask_and_no_tasks_at_all():
    with BatchingPool(paraboloid, 4) as pool:
        assert pool.map(lambda i: i + 1, range(9)) == list(range(1, 10))
        assert pool.map(lambda i: i, []) == []
        assert pool.n_call == 0


def test_asking_outside_of_a_task_is_refused():
    with pytest.raises(BiroError, match="outside a task"):
        ask(np.zeros(2))


def test_a_pool_without_room_is_refused():
    with pytest.raises(InputError, match="size=0"):
        BatchingPool(paraboloid, 0)


def test_no_threads_are_left_behind():
    before = threading.active_count()
    recorded(16, range(16))
    assert threading.active_count() == before


@pytest.mark.parametrize("where", ["_Worker.join", "_Worker.stop", "BatchingPool.close"])
def test_a_pool_whose_end_was_interrupted_goes_on(monkeypatch, where):
    """An error, and a signal's exception while the pool ends its threads."""
    evaluate_badly = True

    def evaluate(rows):
        if evaluate_badly:
            raise ValueError("evaluate")
        return rows[:, 0]

    def interrupted(self):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with BatchingPool(evaluate, 4) as pool:
        monkeypatch.setattr(f"biro.inference.target.batching.{where}", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.map(lambda i: ask(np.array([float(i)])), range(4))
        evaluate_badly = False
        assert pool.map(lambda i: ask(np.array([float(i)])), range(4)) == [0.0, 1.0, 2.0, 3.0]


OFTEN_INTERRUPTED = """
import faulthandler, random, signal, threading, time
import numpy as np
from biro.inference.target.batching import BatchingPool, ask


class Interrupt(BaseException):
    pass


def interrupt(number, frame):
    global quiet_until
    if time.monotonic() > quiet_until:
        quiet_until = time.monotonic() + 1.0
        raise Interrupt


def task(i):
    while True:
        ask(np.zeros(1))


def evaluate(rows):
    global moment
    if moment > 0.0:  # all threads have begun: one that is interrupted while it begins may be lost
        # Once more if need be: Python loses one that comes while it calls back for a weak reference.
        signal.setitimer(signal.ITIMER_REAL, moment, 0.1)
        moment = 0.0
    time.sleep(1e-3)
    return rows[:, 0]


faulthandler.dump_traceback_later(60, exit=True)
signal.signal(signal.SIGALRM, interrupt)
before = threading.active_count()
n_end = 0
for moment in np.random.default_rng(1).uniform(0.001, 0.03, 200):
    try:
        quiet_until = 0.0
        with BatchingPool(evaluate, 16) as pool:
            pool.map(task, range(16))
    except Interrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        n_end += 1
time.sleep(0.5)
assert pool.map(lambda i: i, range(4)) == [0, 1, 2, 3]
pool.close()
print(n_end, threading.active_count() - before)
"""


def test_a_signal_at_any_moment_ends_the_pool_and_its_threads():
    """Between two lines, too, where it is not written down yet who waits for what: 200 random moments."""
    words = [sys.executable, "-c", OFTEN_INTERRUPTED]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["200", "0"]
