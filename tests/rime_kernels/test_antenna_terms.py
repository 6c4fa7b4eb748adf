"""Jones matrices of the antennas, V_pq = A_p X_pq A_q^H: what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rime_kernels import AntennaTerms, InputError, Rime, Rows


def terms_of(rows: Rows, n_batch: int = 2, seed: int = 8, *, diagonal: bool = False) -> AntennaTerms:
    """Random matrices near 1 in two blocks of times and of channels."""
    rng = np.random.default_rng(seed)
    time_block, chan_block = np.arange(rows.n_time) % 2, np.arange(rows.n_chan) * 2 // rows.n_chan
    shape = (n_batch, 1 + time_block.max(), rows.n_antenna, 1 + chan_block.max(), 2, 2)
    jones = np.eye(2) + 0.3 * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    return AntennaTerms(jones * np.eye(2) if diagonal else jones, time_block, chan_block)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"jones": np.ones((1, 1, 5, 1, 2))}, r"jones must have shape \(batch, time_block, antenna"),
        ({"time_block": [0, 0, 1]}, r"time_block must lie in 0 .. n_time_block - 1 = 0, got 0 .. 1"),
        ({"chan_block": [-1, 0, 0]}, r"chan_block must lie in 0"),
        ({"time_block": []}, "time_block must have the block of each time, got none"),
    ],
)
def test_terms_of_wrong_shapes_are_refused(change: dict[str, Any], message: str) -> None:
    given = {"jones": np.ones((1, 1, 5, 1, 2, 2)), "time_block": [0, 0, 0], "chan_block": [0, 0, 0]}
    with pytest.raises(InputError, match=message):
        AntennaTerms(**{**given, **change})


def test_terms_of_other_rows_and_batches_are_refused(problem: Any, sky: Any) -> None:
    rows = problem()
    rime, sources = Rime(rows, backend="cpu", extent=0.04), sky(rows)
    for other in (problem(n_antenna=4), problem(n_time=4), problem(n_chan=4)):
        with pytest.raises(InputError, match="antenna_terms must be those of n_time = 3 time slots"):
            rime.predict(replace(sources, antenna_terms=terms_of(other)))
    with pytest.raises(InputError, match="must have a batch of 1 or 2, got 3"):
        replace(sources, antenna_terms=terms_of(rows, 3))


def test_data_in_stokes_parameters_are_refused(problem: Any, sky: Any) -> None:
    for corr in (["I", "Q", "U", "V"], ["I"], ["XX", "I"]):
        rows = problem(corr=corr)
        sources = sky(rows, antenna_terms=terms_of(rows))
        with pytest.raises(InputError, match="antenna terms need data in the correlations of feeds"):
            Rime(rows, backend="cpu", extent=0.04).predict(sources)


def test_templates_that_lack_correlations_are_refused_beside_leakage(problem: Any, sky: Any) -> None:
    rows = problem(corr=["XX", "YY"])
    template = np.ones((1, rows.n_row, rows.n_chan, 2), complex)
    sources = sky(rows, template_scale=np.ones((2, 1)), antenna_terms=terms_of(rows))
    with pytest.raises(InputError, match="not diagonal need all four correlations of the templates, got 2"):
        Rime(rows, template=template, backend="cpu", extent=0.04).predict(sources)


def test_copies_and_entries_have_their_terms(problem: Any, sky: Any) -> None:
    rows = problem()
    sources = sky(rows, antenna_terms=terms_of(rows))
    copied, last = sources.copy().antenna_terms, sources.entries(1, 2).antenna_terms
    assert copied.jones is not sources.antenna_terms.jones
    np.testing.assert_array_equal(copied.jones, sources.antenna_terms.jones)
    np.testing.assert_array_equal(last.jones, sources.antenna_terms.jones[1:])
    one = replace(sources, antenna_terms=terms_of(rows, 1))
    assert len(one.entries(1, 2).antenna_terms.jones) == 1
