"""`Rime` against explicit sums: every term of the equation, every output, every promise."""

import os
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

from rime_kernels import InputError, Rime, Rows, Sources, stokes_to_corr
from tests.rime_kernels.problems import LINEAR

# The reference differs by the order of its operations: phases of 1e4 turns carry 1e-12.
DOUBLE = 1e-11
# float32 terms of float64 phases.
SINGLE = 2e-6
FORMS = ["factored", "row"]


def rime(rows: Rows, **options: Any) -> Rime:
    return Rime(rows, **{"backend": "cpu", "extent": 0.04, **options})


def data(rows: Rows, seed: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    weight = rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)
    return {"vis": rng.normal(size=shape) + 1j * rng.normal(size=shape), "weight": weight}


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("frame", ["tangent", "uv"])
def test_everything_at_once(problem, sky, beam_of, reference, error_of, precision, form, frame) -> None:
    rows = problem()
    sources = sky(rows, beam=beam_of(rows, "cos3"))
    found = rime(rows, precision=precision, form=form, gaussian_frame=frame).predict(sources)
    expected = reference.visibilities(rows, LINEAR, sources, frame)
    assert error_of(found, expected) < (DOUBLE if precision == "double" else SINGLE)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["cos3", "gaussian", "airy"])
@pytest.mark.parametrize("pointing", [True, False])
def test_beams(problem, sky, beam_of, reference, error_of, form, kind, pointing) -> None:
    rows = problem()
    sources = sky(rows, beam=beam_of(rows, kind, pointing=pointing))
    found = rime(rows, form=form).predict(sources)
    assert error_of(found, reference.visibilities(rows, LINEAR, sources)) < DOUBLE
    # A beam test must see the beam.
    assert error_of(found, reference.visibilities(rows, LINEAR, sky(rows))) > 0.1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "corr", [["XX"], ["YY", "XX"], ["RR", "RL", "LR", "LL"], ["I", "Q", "U", "V"], ["LL", "RR"]]
)
def test_correlations_in_any_order(problem, sky, reference, error_of, form, corr) -> None:
    rows = problem(corr=corr)
    sources = sky(rows)
    assert (
        error_of(rime(rows, form=form).predict(sources), reference.visibilities(rows, corr, sources)) < DOUBLE
    )


@pytest.mark.parametrize("form", FORMS)
def test_stokes_i_alone(problem, sky, reference, error_of, form) -> None:
    rows = problem()
    stokes = sky(rows).stokes * [1, 0, 0, 0]
    sources = sky(rows, stokes=stokes)
    assert (
        error_of(rime(rows, form=form).predict(sources), reference.visibilities(rows, LINEAR, sources))
        < DOUBLE
    )


def test_only_gaussians_only_points_and_none(problem, sky, reference, error_of) -> None:
    rows = problem()
    for n_point, n_gaussian in ((0, 2), (2, 0)):
        sources = sky(rows, n_point=n_point, n_gaussian=n_gaussian)
        assert error_of(rime(rows).predict(sources), reference.visibilities(rows, LINEAR, sources)) < DOUBLE
    assert not rime(rows).predict(sky(rows, n_point=0, n_gaussian=0)).any()


def test_flat_and_constant_brightness(problem, sky, reference, error_of) -> None:
    rows = problem()
    plain = sky(rows)
    sources = sky(rows, spectral_terms=np.zeros((2, 4, 4, 0)), stokes=plain.stokes[:, :1])
    assert error_of(rime(rows).predict(sources), reference.visibilities(rows, LINEAR, sources)) < DOUBLE


def test_no_flux_with_an_infinite_spectrum_is_nothing(problem, sky) -> None:
    rows = problem()
    steep = np.full((2, 4, 4, 1), 1e6)
    low = np.full(4, 5e8)  # every factor overflows
    sources = sky(rows, ref_freq=low, spectral_terms=steep, stokes=np.zeros((2, 1, 4, 4)))
    assert not rime(rows).predict(sources).any()


@pytest.mark.parametrize("form", FORMS)
def test_outputs_follow_from_the_model(problem, sky, form) -> None:
    rows = problem()
    given, sources = data(rows), sky(rows)
    kernel = rime(rows, form=form, **given)
    used = given["weight"] > 0
    residual = kernel.predict(sources) - np.where(used, given["vis"], 0)
    square = given["weight"] * np.abs(residual) ** 2
    np.testing.assert_allclose(kernel.residual(sources), residual, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kernel.weighted_residual2(sources), square, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kernel.chi2(sources), square.sum(axis=(1, 2, 3)), rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_what_has_no_weight_may_be_anything(problem, sky, bad) -> None:
    rows = problem()
    given, sources = data(rows), sky(rows)
    expected = rime(rows, **given).chi2(sources)
    vis = np.where(given["weight"] > 0, given["vis"], bad)
    np.testing.assert_array_equal(rime(rows, vis=vis, weight=given["weight"]).chi2(sources), expected)


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("form", FORMS)
def test_a_batch_is_its_entries(problem, sky, beam_of, precision, form) -> None:
    rows = problem()
    sources = sky(rows, n_batch=5, beam=beam_of(rows, "airy", n_batch=5))
    kernel = rime(rows, precision=precision, form=form, **data(rows))
    np.testing.assert_array_equal(kernel.chi2(sources), [kernel.chi2(entry(sources, b))[0] for b in range(5)])


def entry(sources: Sources, b: int) -> Sources:
    """One entry of a batch."""
    part = slice(b, b + 1)
    beam = sources.beam
    if beam is not None:
        pointing = None if beam.pointing is None else beam.pointing[part]
        beam = type(beam)(beam.kind, beam.scale[part], pointing)
    return Sources(
        sources.lm[part], sources.stokes[part], sources.ref_freq, sources.spectral_terms[part],
        sources.log_spectrum, sources.shape[part], beam,
    )  # fmt: skip


def test_a_batch_larger_than_the_budget(problem, sky, monkeypatch) -> None:
    from rime_kernels.cpu import engine

    rows = problem()
    sources, kernel = sky(rows, n_batch=7), rime(rows, **data(rows))
    expected = kernel.chi2(sources)
    monkeypatch.setattr(engine, "MEMORY_BUDGET", 1)
    np.testing.assert_array_equal(kernel.chi2(sources), expected)


@pytest.mark.parametrize("field", ["lm", "stokes", "spectral_terms", "shape", "scale", "pointing"])
def test_nan_spoils_its_own_entry_alone(problem, sky, beam_of, field) -> None:
    rows = problem()
    kernel, beam = rime(rows, **data(rows)), beam_of(rows, "cos3", n_batch=3)
    sources = sky(rows, n_batch=3, beam=beam)
    expected = kernel.chi2(sources)
    spoilt = getattr(beam if field in ("scale", "pointing") else sources, field)
    spoilt[1] = np.nan
    expected[1] = np.nan
    np.testing.assert_array_equal(kernel.chi2(sources), expected)


@pytest.mark.parametrize("field", ["lm", "shape", "scale"])
def test_the_impossible_is_nan_in_chi2_and_refused_elsewhere(problem, sky, beam_of, field) -> None:
    rows = problem()
    kernel, beam = rime(rows, **data(rows)), beam_of(rows, "gaussian", n_batch=3)
    sources = sky(rows, n_batch=3, beam=beam)
    getattr(beam if field == "scale" else sources, field)[2] = 0.8 if field == "lm" else -1e-5
    chi2 = kernel.chi2(sources)
    assert np.isnan(chi2[2])
    assert np.isfinite(chi2[:2]).all()
    with pytest.raises(InputError, match=r"batch entry 2 has impossible values: l\^2 \+ m\^2 must be"):
        kernel.predict(sources)


def test_results_repeat_to_the_bit_for_any_number_of_threads() -> None:
    code = """
        import importlib.util, sys
        import numba, numpy as np
        spec = importlib.util.spec_from_file_location("problems", sys.argv[1])
        problems = importlib.util.module_from_spec(spec); spec.loader.exec_module(problems)
        from rime_kernels import Rime
        rows = problems.make_rows(n_antenna=9, n_time=5)
        sources = problems.make_sources(rows, n_batch=3)
        vis = np.ones((rows.n_row, rows.n_chan, rows.n_corr))
        kernel = Rime(rows, vis=vis, weight=vis, backend="cpu", precision="single", extent=0.04)
        found = set()
        for n in (1, 2, 2, 3):
            numba.set_num_threads(n)
            found.add(kernel.chi2(sources).tobytes())
        print(len(found))
    """
    conftest = __file__.replace("test_rime.py", "conftest.py")
    command = [sys.executable, "-c", textwrap.dedent(code), conftest]
    environment = {**os.environ, "NUMBA_NUM_THREADS": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout == "1\n", done.stderr


def test_two_python_threads_may_call(problem, sky) -> None:
    from concurrent.futures import ThreadPoolExecutor

    rows = problem()
    sources, kernel = sky(rows), rime(rows, **data(rows))
    expected = kernel.chi2(sources)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: kernel.chi2(sources), range(20)):
            np.testing.assert_array_equal(found, expected)


def test_a_slot_of_many_rows_is_cut_and_whole(reference, sky, error_of) -> None:
    rng = np.random.default_rng(1)
    n_row = 2500  # pieces are 1024 rows
    zeros = np.zeros(n_row, int)
    rows = Rows(
        rng.normal(size=(n_row, 3)) * 500, zeros, zeros + 1, zeros, [1e9], stokes_to_corr(["XX"]), 2, 1
    )
    sources = sky(rows, n_batch=1)
    found = rime(rows)
    assert found.form == "row"
    assert error_of(found.predict(sources), reference.visibilities(rows, ["XX"], sources)) < DOUBLE


def test_form_is_chosen_said_and_forced(problem) -> None:
    rows = problem()
    assert rime(rows).form == "factored"
    assert "antennas close to" in rime(rows).reason
    assert "cpu: as asked" in rime(rows).reason
    broken = Rows(
        rows.uvw + np.random.default_rng(0).normal(size=rows.uvw.shape),
        rows.antenna1, rows.antenna2, rows.time_index, rows.chan_freq, rows.stokes_to_corr, 5, 3,
    )  # fmt: skip
    assert rime(broken).form == "row"
    assert rime(broken, form="factored").form == "factored"
    assert "as asked (by itself: row form" in rime(broken, form="factored").reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "half"}, "precision must be one of 'single', 'double'; got 'half'"),
        ({"form": "matrix"}, "form must be one of"),
        ({"gaussian_frame": "image"}, "gaussian_frame must be one of 'tangent', 'uv'"),
        ({"backend": "gpu"}, "backend must be one of 'auto', 'cpu', 'cuda'; got 'gpu'"),
        ({"extent": float("nan")}, "extent must be a number of at least 0"),
        ({"weight": np.ones((1, 1, 1))}, "weight was given without vis"),
        (
            {"vis": np.ones((2, 3, 4))},
            r"vis must have shape \(row = \d+, chan = 3, corr = 4\), got \(2, 3, 4\)",
        ),
    ],
)
def test_bad_options(problem, changes, message) -> None:
    with pytest.raises(InputError, match=message):
        rime(problem(), **changes)


@pytest.mark.parametrize(
    ("value", "message"), [(-1.0, "weight must be at least 0"), (np.nan, "weight must be fin")]
)
def test_bad_weights(problem, value, message) -> None:
    given = data(problem())
    given["weight"][0, 0, 0] = value
    with pytest.raises(InputError, match=message):
        rime(problem(), **given)


def test_nan_data_with_weight_are_refused(problem) -> None:
    given = data(problem())
    given["weight"][3, 1, 2], given["vis"][3, 1, 2] = 1.0, np.nan
    with pytest.raises(
        InputError, match=r"vis, .* must be finite; 1 are not, the first at index \(3, 1, 2\)"
    ):
        rime(problem(), **given)


def test_chi2_needs_data(problem, sky) -> None:
    rows = problem()
    with pytest.raises(InputError, match=r"chi2 needs data: give Rime\(..., vis and weight=...\)"):
        rime(rows).chi2(sky(rows))


def test_axes_must_be_those_of_the_rows(problem, sky, beam_of) -> None:
    rows, other = problem(), problem(n_antenna=4, n_time=2)
    with pytest.raises(InputError, match="stokes must have 1 or n_time = 3 time slots, got 2"):
        rime(rows).predict(sky(other))
    with pytest.raises(InputError, match=r"beam.pointing must have shape \(2, 1 or 3, 5, 2\)"):
        rime(rows).predict(sky(rows, beam=beam_of(other, "airy")))
