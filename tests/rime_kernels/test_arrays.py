"""What Rows, Sources and Beam refuse, in one line."""

from typing import Any

import numpy as np
import pytest

import rime_kernels
from rime_kernels import Beam, InputError, Rows, Sources, stokes_to_corr
from rime_kernels.check import within_circle


def rows(**changes: Any) -> Rows:
    fields: dict[str, Any] = {
        "uvw": np.zeros((4, 3)),
        "antenna1": [0, 0, 1, 0],
        "antenna2": [1, 2, 2, 1],
        "time_index": [0, 0, 0, 1],
        "chan_freq": [1e9, 2e9],
        "stokes_to_corr": stokes_to_corr(["XX", "YY"]),
        "n_antenna": 3,
        "n_time": 2,
    }
    return Rows(**{**fields, **changes})


def sources(**changes: Any) -> Sources:
    fields: dict[str, Any] = {
        "lm": np.zeros((2, 3, 2)),
        "stokes": np.ones((2, 1, 3, 4)),
        "ref_freq": np.full(3, 1e9),
        "spectral_terms": np.zeros((2, 3, 4, 1)),
        "log_spectrum": np.ones(3, bool),
        "shape": np.zeros((2, 1, 3)),
    }
    return Sources(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"uvw": np.zeros((3, 1200))}, r"uvw must have shape \(row, 3\), got \(3, 1200\); transpose it\?"),
        ({"uvw": np.full((4, 3), np.nan)}, r"uvw must be finite; 12 are not, the first at index \(0, 0\)"),
        ({"uvw": [["a", "b", "c"]] * 4}, "uvw must be an array of real numbers, got list"),
        ({"uvw": np.zeros((4, 3), complex)}, "uvw must be an array of real numbers, got dtype complex128"),
        ({"antenna1": [0, 1]}, r"antenna1 must have shape \(row = 4,\), got \(2,\)"),
        ({"antenna2": [1.5, 2, 2, 1]}, "antenna2 must be whole numbers"),
        ({"antenna2": [1, 2, 3, 1]}, r"antenna2 must lie in 0 \.\. n_antenna - 1 = 2, got 1 \.\. 3"),
        ({"time_index": [0, 0, -1, 0]}, r"time_index must lie in 0 \.\. n_time - 1 = 1, got -1 \.\. 0"),
        ({"chan_freq": [1e9, 0.0]}, "chan_freq must be positive"),
        ({"chan_freq": []}, "at least one chan is needed"),
        ({"stokes_to_corr": np.eye(3)}, r"stokes_to_corr must have shape \(corr, 4\), got \(3, 3\)"),
    ],
)
def test_rows_refuse(changes, message) -> None:
    with pytest.raises(InputError, match=message):
        rows(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lm": np.zeros((3, 2))}, r"lm must have shape \(batch, source, 2\), got \(3, 2\)"),
        ({"stokes": np.ones((2, 3, 4))}, r"stokes must have shape \(batch = 2, time, source = 3, 4\)"),
        ({"ref_freq": np.zeros(3)}, "ref_freq must be positive"),
        ({"shape": np.zeros((2, 4, 3))}, "shape has 4 Gaussians, but there are only 3 sources"),
        ({"beam": Beam("cos3", np.ones(1))}, "beam.scale must have shape"),
    ],
)
def test_sources_refuse(changes, message) -> None:
    with pytest.raises(InputError, match=message):
        sources(**changes)


def test_unknown_beam() -> None:
    with pytest.raises(
        InputError, match="the kind of beam must be one of 'cos3', 'gaussian', 'airy'; got 'flat'"
    ):
        Beam("flat", np.ones(1))  # type: ignore[arg-type]


def test_counts() -> None:
    made = sources()
    assert (made.n_batch, made.n_source, made.n_gaussian, made.n_point) == (2, 3, 1, 2)
    assert (rows().n_row, rows().n_chan, rows().n_corr) == (4, 2, 2)


def test_rows_from_columns_number_the_times() -> None:
    made = Rows.from_columns(
        np.zeros((3, 3)), [0, 0, 4], [1, 2, 1], [7.5, 2.5, 7.5], [1e9], stokes_to_corr("I")
    )
    assert made.time_index.tolist() == [1, 0, 1]
    assert (made.n_antenna, made.n_time) == (5, 2)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [False, False]),
        ({"lm": [[0.69, 0.69], [0.8, 0.6]]}, [False, False]),
        ({"lm": [[0.71, 0.70], [0.72, 0.70]]}, [False, True]),
        ({"lm": [[-0.9, 0.1], [0.1, -1.01]]}, [False, True]),
        ({"lm": [[np.nan, 0.1], [2.0, 0.1]]}, [False, True]),
        ({"shape": [[1.0, 0.0, -3.0], [1.0, -1e-9, 0.0]]}, [False, True]),
        ({"shape": [[-1e-9, 0.0, 0.0], [np.nan, 1.0, 0.0]]}, [True, False]),
    ],
)
def test_impossible_is_each_entry_by_itself(changes, expected) -> None:
    """l^2 + m^2 above 1, or an axis below 0; 0.8^2 + 0.6^2 is 1, NaN is neither."""
    given = sources()
    for name, values in changes.items():
        getattr(given, name)[:, -1] = values
    assert given.invalid().tolist() == expected


@pytest.mark.parametrize(
    ("n", "radius"), [(3, 0.5), (100, 0.05), (100, 0.2), (100, 0.68), (100, 0.98), (5000, 0.68)]
)
def test_what_is_certainly_within_the_circle_is(n, radius) -> None:
    """Few or many directions, the squares of all together below or above 1; one beyond it is always seen."""
    turn = np.random.default_rng(0).uniform(0.0, 2.0 * np.pi, (2, n))
    lm = radius * np.stack([np.cos(turn), np.sin(turn)], axis=-1)
    assert within_circle(lm) == (radius < 0.7)  # beyond, only a look at each direction is certain
    for beyond in (1.01, np.nan, -np.inf):
        changed = lm.copy()
        changed[1, -1] = 0.0, beyond
        assert not within_circle(changed)
    assert within_circle(np.zeros((2, 0, 2)))


def test_a_negative_beam_is_impossible() -> None:
    assert sources(beam=Beam("cos3", np.array([1.0, -1.0]))).invalid().tolist() == [False, True]


def test_unchecked_is_the_same_but_for_the_checks() -> None:
    checked = sources(beam=Beam("airy", np.ones(2)))
    beam = Beam.unchecked("airy", checked.beam.scale)
    arrays = [getattr(checked, name) for name in ("lm", "stokes", "ref_freq", "spectral_terms")]
    made = Sources.unchecked(*arrays, checked.log_spectrum, checked.shape, beam, polarised=True)
    assert made.lm is checked.lm
    assert (made.n_batch, made.n_source, made.n_gaussian) == (2, 3, 1)
    assert made.beam.pointing is None
    assert made.invalid().tolist() == [False, False]


def test_polarised_is_looked_at_unless_it_was_said() -> None:
    stokes = np.ones((2, 1, 3, 4))
    assert sources(stokes=stokes).polarised
    stokes[..., 1:] = 0.0
    given = sources(stokes=stokes)
    assert not given.polarised
    said = Sources.unchecked(
        given.lm, given.stokes, given.ref_freq, given.spectral_terms, given.log_spectrum, given.shape, None,
        polarised=True,
    )  # fmt: skip
    assert said.polarised


def test_copies_share_nothing() -> None:
    given = sources(beam=Beam("cos3", np.ones(2), np.zeros((2, 1, 3, 2))))
    copied = given.copy()
    for name in ("lm", "stokes", "ref_freq", "spectral_terms", "log_spectrum", "shape"):
        np.testing.assert_array_equal(getattr(copied, name), getattr(given, name))
        assert not np.shares_memory(getattr(copied, name), getattr(given, name))
    assert copied.beam.kind == "cos3"
    assert not np.shares_memory(copied.beam.pointing, given.beam.pointing)


def test_earlier_names_work_and_warn() -> None:
    given = sources(beam=Beam("cos3", np.array([1.0, -1.0])))
    with pytest.warns(DeprecationWarning, match=r"Sources\.invalid"):
        assert given.impossible().tolist() == [False, True]
    with pytest.warns(DeprecationWarning, match="chi2_many"):
        assert rime_kernels.chi2_together is rime_kernels.chi2_many
