"""Jones matrices of the antennas, V_pq = A_p X_pq A_q^H, against explicit sums, on every backend."""

from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest

from rime_kernels import AntennaTerms, Gradient, InputError, Rime, Rows, Sources
from tests.rime_kernels.problems import CIRCULAR, LINEAR, rows_for
from tests.rime_kernels.remembered import remembered

# Relative to the 2-norm; phases of some thousand turns keep 1e-12, float32 rounds to 1e-7 in each term.
TOLERANCE = {"double": 1e-11, "single": 2e-6}
# Steps over which chi2 is a polynomial of low degree; differences keep 1e-8 of the largest derivative.
STEPS = {"lm": 2e-6, "pointing": 2e-6, "template_shift": 2e-6, "shape": 1e-8, "beam_scale": 1e-12}
SLOPE_TOLERANCE = {"double": 1e-7, "single": 3e-5}


@pytest.fixture(params=["factored", "row"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def data_for(rows: Rows) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    weight = rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)
    vis = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return {"vis": np.where(weight > 0.0, vis, 0.0), "weight": weight}


def terms_of(rows: Rows, n_batch: int = 2, seed: int = 8, *, diagonal: bool = False) -> AntennaTerms:
    """Random matrices near 1 in two blocks of times and of channels; diagonal ones are said to stay so."""
    rng = np.random.default_rng(seed)
    time_block, chan_block = np.arange(rows.n_time) % 2, np.arange(rows.n_chan) * 2 // rows.n_chan
    shape = (n_batch, 1 + time_block.max(), rows.n_antenna, 1 + chan_block.max(), 2, 2)
    jones = np.eye(2) + 0.3 * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    if diagonal:
        return AntennaTerms(jones * np.eye(2), time_block, chan_block, stays_diagonal=True)
    return AntennaTerms(jones, time_block, chan_block)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"jones": np.ones((1, 1, 5, 1, 2))}, r"jones must have shape \(batch, time_block, antenna"),
        ({"time_block": [0, 0, 1]}, r"time_block must lie in 0 .. n_time_block - 1 = 0, got 0 .. 1"),
        ({"chan_block": [-1, 0, 0]}, r"chan_block must lie in 0"),
        ({"stays_diagonal": True}, "stays_diagonal needs matrices that are 0 off the diagonal, got others"),
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


@pytest.mark.parametrize("diagonal", [True, False])
def test_what_differs_between_feeds_is_refused_on_stokes_parameters(
    problem: Any, sky: Any, diagonal: bool
) -> None:
    for corr in (["I", "Q", "U", "V"], ["I"]):
        rows = problem(corr=corr)
        sources = sky(rows, antenna_terms=terms_of(rows, diagonal=diagonal))
        with pytest.raises(InputError, match=r"Stokes parameters, .* must be the same number for both"):
            Rime(rows, backend="cpu", extent=0.04).predict(sources)
    rows = problem(corr=["XX", "I"])
    with pytest.raises(InputError, match="antenna terms need data in the correlations of feeds"):
        Rime(rows, backend="cpu", extent=0.04).predict(sky(rows, antenna_terms=terms_of(rows)))


@pytest.mark.parametrize(
    ("corr", "polarised"),
    [
        pytest.param(["I"], True, marks=pytest.mark.thorough),
        (["V", "I", "U", "Q"], True),
        pytest.param(["I"], False, marks=pytest.mark.thorough),  # loops that no other test here compiles
    ],
)
def test_gains_of_both_feeds_multiply_stokes_parameters(
    tiles_always: None, problem: Any, sky: Any, reference: ModuleType, error_of: Any, backend: str, form: str,
    corr: list[str], polarised: bool,
) -> None:  # fmt: skip
    """V_pq = g_p g_q^* X_pq of each, with the slope by each g as the sum along the diagonal."""
    rows = rows_for(problem, corr=corr, n_antenna=3, n_time=2, n_chan=2)
    data, terms = data_for(rows), terms_of(rows, 2, diagonal=True)
    terms = replace(terms, jones=terms.jones[..., :1, :1] * np.eye(2))
    sources = sky(rows, n_point=1, n_gaussian=1)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    bare = reference.visibilities(rows, corr, sources)
    rime = Rime(rows, **data, backend=backend, form=form, extent=0.04)
    with_terms = replace(sources, antenna_terms=terms)
    time, chan = np.ix_(terms.time_block[rows.time_index], terms.chan_block)

    def seen(gain: np.ndarray) -> np.ndarray:
        """(n_batch, row, chan, corr), of g (n_batch, time block, antenna, channel block)."""
        p, q = (gain[:, time, antenna[:, None], chan] for antenna in (rows.antenna1, rows.antenna2))
        return np.asarray((p * q.conj())[..., None] * bare)

    def chi2(gain: np.ndarray) -> np.ndarray:
        square: np.ndarray = data["weight"] * np.abs(seen(gain) - data["vis"]) ** 2
        return square.sum(axis=(1, 2, 3))

    gain = terms.jones[..., 0, 0]
    assert error_of(rime.predict(with_terms), seen(gain)) < TOLERANCE["double"]
    np.testing.assert_allclose(rime.chi2(with_terms), chi2(gain), rtol=TOLERANCE["double"])
    _, slopes = rime.chi2_and_gradient(with_terms)
    found = np.einsum("btafii->btaf", slopes.antenna_terms)
    for index in np.ndindex(gain.shape[1:]):
        one = np.zeros(gain.shape)
        one[:, *index] = 0.1
        by_real, by_imag = (
            (
                8 * (chi2(gain + z * one) - chi2(gain - z * one))
                - chi2(gain + 2 * z * one)
                + chi2(gain - 2 * z * one)
            )
            / 1.2
            for z in (1.0, 1j)
        )
        # chi2 is a polynomial of degree 4 in each part of a gain (of degree 2 but for autocorrelations), of
        # which these differences are exact but for roundings.
        np.testing.assert_allclose(
            found[:, *index], by_real + 1j * by_imag, rtol=1e-10, atol=1e-10 * chi2(gain).max()
        )


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


# ---- visibilities and chi2


@pytest.mark.parametrize("precision", ["double", pytest.param("single", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("corr", "n_batch", "diagonal"),
    [(LINEAR, 2, False), (["LL", "LR", "RL", "RR"], 1, False), (["YY", "XX"], 2, True), (["RL"], 1, False)],
)
def test_visibilities_and_chi2(
    tiles_always: None, problem: Any, sky: Any, reference: ModuleType, error_of: Any, backend: str, form: str,
    precision: str, corr: list[str], n_batch: int, diagonal: bool,
) -> None:  # fmt: skip
    rows = rows_for(problem, corr=corr)
    data = data_for(rows)
    rime = Rime(rows, **data, backend=backend, form=form, precision=precision, extent=0.04)
    sources = sky(rows, antenna_terms=terms_of(rows, n_batch, diagonal=diagonal))
    expected = reference.visibilities(rows, corr, sources)
    tolerance = TOLERANCE[precision]
    assert error_of(rime.predict(sources), expected) < tolerance
    assert error_of(rime.residual(sources), expected - data["vis"]) < tolerance
    square = data["weight"] * np.abs(expected - data["vis"]) ** 2
    assert error_of(rime.weighted_residual2(sources), square) < tolerance
    np.testing.assert_allclose(rime.chi2(sources), square.sum(axis=(1, 2, 3)), rtol=tolerance)
    t = np.array([3.0, 7.0])
    student = (t[:, None, None, None] * np.log1p(square / t[:, None, None, None])).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(rime.chi2(sources, t), student, rtol=tolerance)


@pytest.mark.parametrize(("n_chan", "n_time"), [(1, 3), (20, 2), (1, 20)])
def test_lanes_along_any_axis(
    problem: Any, sky: Any, reference: ModuleType, error_of: Any, form: str, n_chan: int, n_time: int
) -> None:
    """Lanes of the CPU are channels, times or rows: each sees the matrices of its own."""
    rows = problem(n_chan=n_chan, n_time=n_time)
    rime = Rime(rows, **data_for(rows), backend="cpu", form=form, extent=0.04)
    sources = sky(rows, antenna_terms=terms_of(rows))
    assert error_of(rime.predict(sources), reference.visibilities(rows, LINEAR, sources)) < 1e-11
    check_slopes(reference, rime, sources, LINEAR, {}, ("antenna_terms",))


@pytest.mark.parametrize("corr", [LINEAR, CIRCULAR])
def test_stokes_i_alone_is_turned_into_all_correlations(
    tiles_always: None, problem: Any, sky: Any, reference: ModuleType, error_of: Any, backend: str, form: str,
    corr: list[str],
) -> None:  # fmt: skip
    """Without polarised sources X is I times the identity: matrices off the diagonal make cross-hands."""
    rows = rows_for(problem, corr=corr)
    sources = sky(rows, antenna_terms=terms_of(rows))
    sources.stokes[..., 1:] = 0.0
    rime = Rime(rows, backend=backend, form=form, extent=0.04)
    found, expected = rime.predict(sources), reference.visibilities(rows, corr, sources)
    assert not sources.polarised
    assert np.abs(found[..., 1]).max() > 0.1
    assert error_of(found, expected) < 1e-11


def test_a_matrix_with_nan_spoils_its_entry_alone(problem: Any, sky: Any, backend: str, form: str) -> None:
    rows = rows_for(problem)
    rime = Rime(rows, **data_for(rows), backend=backend, form=form, extent=0.04)
    sources = sky(rows, antenna_terms=terms_of(rows))
    good = rime.chi2(sources)
    sources.antenna_terms.jones[0, 0, 0] = np.nan
    found = rime.chi2(sources)
    assert np.isnan(found[0])
    assert found[1] == good[1]


@pytest.mark.cuda
def test_a_gpu_with_little_memory_gives_the_same(
    tiles_always: None, cuda_backend: str, problem: Any, sky: Any, form: str
) -> None:
    """In slabs, each of which sees the matrices of its own times and rows."""
    rows = rows_for(problem, n_antenna=3, n_time=4)
    sources = sky(rows, n_point=1, n_gaussian=0, antenna_terms=terms_of(rows))
    found = []
    for limit in (None, "4 kB"):
        rime = Rime(rows, **data_for(rows), backend=cuda_backend, form=form, extent=0.04, memory_limit=limit)
        found.append((rime.chi2(sources), rime.predict(sources)))
    assert "slabs" in rime.plan(sources)
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.cuda
def test_constant_matrices_are_sent_to_a_gpu_once(
    tiles_always: None, monkeypatch: pytest.MonkeyPatch, cuda_backend: str, problem: Any, sky: Any,
    reference: ModuleType,
) -> None:  # fmt: skip
    """Those that nobody can write to stay there, until others come; what can be changed is sent each time."""
    from rime_kernels.cuda import kept_terms

    rows = rows_for(problem)
    data, sent = data_for(rows), []
    rime, rows_of = Rime(rows, **data, backend=cuda_backend, extent=0.04), kept_terms.jones_rows
    monkeypatch.setattr(kept_terms, "jones_rows", lambda terms: sent.append(terms) or rows_of(terms))
    frozen = [terms_of(rows, 1, seed) for seed in (8, 9)]
    for terms in frozen:
        terms.jones.flags.writeable = False
    # Of both views, one can be changed by way of its base.
    view = replace(frozen[0], jones=frozen[0].jones[:])
    open_one = terms_of(rows, 1, 10)
    hidden = replace(open_one, jones=np.broadcast_to(open_one.jones, open_one.jones.shape))
    given = [frozen[0], frozen[0], frozen[0], frozen[1], frozen[0], view, hidden, hidden]
    for i, terms in enumerate(given):
        sources = sky(rows, n_point=1, n_gaussian=0, antenna_terms=terms)
        if terms is hidden:
            open_one.jones[0, 0, 0] *= 1.01
        expected = reference.chi2(rows, LINEAR, sources, **data)
        # Played back on a GPU from the second call of a kind on.
        found = rime.chi2_and_gradient(sources)[0] if i % 2 else rime.chi2(sources)
        np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert sent == [frozen[0], frozen[1], frozen[0], view]


# ---- derivatives


def arrays_of(sources: Sources | Gradient) -> dict[str, np.ndarray]:
    """The arrays that have derivatives, by the names that `Gradient` has."""
    names = [field.name for field in fields(Gradient)]
    if isinstance(sources, Gradient):
        found = {name: getattr(sources, name) for name in names}
    else:
        beam, terms = sources.beam, sources.antenna_terms
        found = {name: getattr(sources, name, None) for name in names}
        found |= {"beam_scale": beam and beam.scale, "pointing": beam and beam.pointing}
        found["antenna_terms"] = None if terms is None else terms.jones
    return {name: values for name, values in found.items() if values is not None}


def moved(sources: Sources, name: str, change: np.ndarray) -> Sources:
    """The sources with something added to one of their arrays."""
    if name == "antenna_terms":
        terms = replace(sources.antenna_terms, jones=sources.antenna_terms.jones + change)
        return replace(sources, antenna_terms=terms)
    if name in ("beam_scale", "pointing"):
        field = name.removeprefix("beam_")
        beam = replace(sources.beam, **{field: getattr(sources.beam, field) + change})
        return replace(sources, beam=beam)
    return replace(sources, **{name: getattr(sources, name) + change})


@remembered
def expected_slopes(
    reference: ModuleType, rows: Rows, sources: Sources, corr: list[str], template: dict[str, Any], name: str
) -> np.ndarray:
    """Differences of explicit sums along each element of an array; of diagonal matrices their diagonals."""
    data, values, n_batch = data_for(rows), arrays_of(sources)[name], sources.n_batch
    expected = np.zeros((n_batch, *values.shape[1:]), values.dtype)
    full = reference.before_antennas(rows, corr, sources, **template)
    stays_diagonal = name == "antenna_terms" and sources.antenna_terms.stays_diagonal
    for index in np.ndindex(*values.shape[1:]):
        if stays_diagonal and index[-1] != index[-2]:
            continue
        for unit in (1.0, 1j) if np.iscomplexobj(values) else (1.0,):
            one = np.zeros(expected.shape, values.dtype)
            one[:, *index] = unit

            def chi2_at(x: float, one: np.ndarray = one) -> np.ndarray:
                away = moved(sources, name, x * one)
                if name != "antenna_terms":
                    found: np.ndarray = reference.chi2(rows, corr, away, **data, **template)
                    return found
                vis = reference.through_antennas(rows, corr, away.antenna_terms, full)
                away2: np.ndarray = data["weight"] * np.abs(vis - data["vis"]) ** 2
                return away2.sum(axis=(1, 2, 3))

            expected[:, *index] += unit * reference.derivative(chi2_at, STEPS.get(name, 0.05))
    return expected


def check_slopes(
    reference: ModuleType, rime: Rime, sources: Sources, corr: list[str], template: dict[str, Any],
    names: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """The gradient of chi2 against differences of explicit sums along each element of some arrays."""
    data, tolerance = data_for(rime.rows), SLOPE_TOLERANCE[rime.precision]
    chi2, gradient = rime.chi2_and_gradient(sources)
    of_arrays = arrays_of(gradient)
    np.testing.assert_allclose(
        chi2, reference.chi2(rime.rows, corr, sources, **data, **template), rtol=TOLERANCE[rime.precision]
    )
    for name, values in arrays_of(sources).items():
        if names and name not in names:
            continue
        found = of_arrays[name]
        assert found.shape == (sources.n_batch, *values.shape[1:])
        expected = expected_slopes(reference, rime.rows, sources, corr, template, name)
        if name == "antenna_terms" and sources.antenna_terms.stays_diagonal:
            found = found * np.eye(2)
        for b in range(sources.n_batch):
            scale = np.abs(expected[b]).max()
            assert np.abs(found[b] - expected[b]).max() < tolerance * scale, name


def full_sky(rows: Rows, sky: Any, beam_of: Any, **changes: Any) -> Sources:
    """One point, one Gaussian, a beam with pointing errors; matrices that every entry shares."""
    found: Sources = sky(rows, n_point=1, n_gaussian=1, beam=beam_of(rows, "gaussian"), **changes)
    return found


@pytest.mark.parametrize(
    ("corr", "precision", "diagonal"),
    [
        (LINEAR, "double", False),
        (["LL", "RR", "LR"], "double", False),
        (["RR", "RL", "LR", "LL"], "single", True),
        (["RL", "RR", "LL"], "double", True),
    ],
)
def test_gradient_of_every_array(
    tiles_always: None, problem: Any, sky: Any, beam_of: Any, reference: ModuleType, backend: str, form: str,
    corr: list[str], precision: str, diagonal: bool,
) -> None:  # fmt: skip
    """Of sources and beams seen through matrices, and of every element of these, zeros included.

    Of matrices that stay diagonal, of those elements that they have.
    """
    rows = rows_for(problem, corr=corr, n_antenna=3, n_time=2, n_chan=2)
    rime = Rime(rows, **data_for(rows), backend=backend, form=form, precision=precision, extent=0.04)
    sources = full_sky(rows, sky, beam_of, antenna_terms=terms_of(rows, 2, diagonal=diagonal))
    names = ("lm", "stokes", "shape", "pointing", "antenna_terms")
    check_slopes(reference, rime, sources, corr, {}, names)


@pytest.mark.cuda
def test_gradient_of_stokes_i_alone(
    tiles_always: None, problem: Any, sky: Any, beam_of: Any, reference: ModuleType, cuda_backend: str,
    form: str,
) -> None:  # fmt: skip
    """A GPU's kernels for I alone see all correlations through matrices, too."""
    rows = rows_for(problem, n_antenna=3, n_time=2, n_chan=2)
    rime = Rime(rows, **data_for(rows), backend=cuda_backend, form=form, extent=0.04)
    sources = full_sky(rows, sky, beam_of, antenna_terms=terms_of(rows, 2))
    sources.stokes[..., 1:] = 0.0
    assert not sources.polarised
    check_slopes(reference, rime, sources, LINEAR, {}, ("lm", "shape", "pointing", "antenna_terms"))


def templates_for(rows: Rows) -> dict[str, Any]:
    rng = np.random.default_rng(11)
    shape = (2, rows.n_row, rows.n_chan, rows.n_corr)
    template = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return {"template": template, "template_lm": np.array([[0.01, 0.02], [-0.02, 0.0]])}


@pytest.mark.parametrize(("corr", "diagonal"), [(LINEAR, False), (["YY", "XX"], True)])
@pytest.mark.parametrize("shifted", [False, True])
def test_templates_are_seen_through_the_matrices(
    tiles_always: None, problem: Any, sky: Any, reference: ModuleType, error_of: Any, backend: str, form: str,
    corr: list[str], diagonal: bool, shifted: bool,
) -> None:  # fmt: skip
    rows, rng = rows_for(problem, corr=corr, n_antenna=3), np.random.default_rng(12)
    template = templates_for(rows)
    rime = Rime(rows, **data_for(rows), **template, backend=backend, form=form, extent=0.04)
    sources = sky(
        rows, n_point=1, n_gaussian=0, template_scale=rng.normal(size=(2, 2)),
        template_shift=rng.normal(scale=1e-3, size=(2, 2, 2)) if shifted else None,
        antenna_terms=terms_of(rows, 1, diagonal=diagonal),
    )  # fmt: skip
    expected = reference.seen_through_antennas(rows, corr, sources, **template)
    assert error_of(rime.predict(sources), expected) < 1e-11
    if diagonal:
        gradient = rime.chi2_and_gradient(sources)[1].antenna_terms
        assert not np.any(gradient * (1.0 - np.eye(2)))
    names = ("template_scale", "template_shift", "antenna_terms")
    check_slopes(reference, rime, sources, corr, template, names)


def test_students_t_has_the_gradient_of_its_chi2(
    tiles_always: None, problem: Any, sky: Any, backend: str, form: str, reference: ModuleType
) -> None:
    rows = rows_for(problem, n_antenna=3)
    rime = Rime(rows, **data_for(rows), backend=backend, form=form, extent=0.04)
    sources, t = sky(rows, n_point=1, n_gaussian=0, antenna_terms=terms_of(rows)), np.array([4.0, 9.0])
    _, gradient = rime.chi2_and_gradient(sources, t)
    rng = np.random.default_rng(13)
    change = rng.normal(size=sources.antenna_terms.jones.shape) * 1.0
    # In the direction of a random real change: sums of explicit logarithms along it.
    data = data_for(rows)

    def chi2(x: float) -> np.ndarray:
        vis = reference.visibilities(rows, LINEAR, moved(sources, "antenna_terms", x * change))
        square = data["weight"] * np.abs(vis - data["vis"]) ** 2 / t[:, None, None, None]
        found: np.ndarray = t * np.log1p(square).sum(axis=(1, 2, 3))
        return found

    found = np.sum(gradient.antenna_terms.real * change, axis=tuple(range(1, change.ndim)))
    # Steps of 1e-3: logarithms are no polynomials; rounding then leaves 1e-9.
    np.testing.assert_allclose(found, reference.derivative(chi2, 1e-3), rtol=1e-7)


def change_of(sources: Sources, seed: int = 21, n_change: int = 3) -> Gradient:
    """Random changes of every array of the sources."""
    rng = np.random.default_rng(seed)
    change: dict[str, Any] = {}
    for name, values in arrays_of(sources).items():
        shape = (n_change, *values.shape[1:])
        change[name] = rng.normal(size=shape) * (
            1e-5 if name == "shape" else 1e-9 if name == "beam_scale" else 1
        )
        if np.iscomplexobj(values):
            change[name] = change[name] + 1j * rng.normal(size=shape)
    return Gradient(**change)


def test_changes_of_visibilities(
    problem: Any, sky: Any, beam_of: Any, reference: ModuleType, error_of: Any, form: str
) -> None:
    """J v against differences of explicit sums, each array by itself and all together."""
    rows = problem(n_antenna=4)
    rime = Rime(rows, **data_for(rows), backend="cpu", form=form, extent=0.04)
    sources = full_sky(rows, sky, beam_of, antenna_terms=terms_of(rows)).entries(0, 1).copy()
    change = change_of(sources, n_change=1)
    total = 0.0
    for name, values in arrays_of(change).items():
        step = {"lm": 3e-7, "pointing": 2e-6, "shape": 0.01, "beam_scale": 1e-3}.get(name, 0.02)

        def vis(x: float, name: str = name, values: np.ndarray = values) -> np.ndarray:
            found: np.ndarray = reference.visibilities(rows, LINEAR, moved(sources, name, x * values))
            return found

        nothing = {other: np.zeros_like(x) for other, x in arrays_of(change).items() if other != name}
        found = rime.tangent(sources, replace(change, **nothing))
        assert error_of(found, reference.derivative(vis, step)) < 1e-7, name
        total = total + found
    assert error_of(rime.tangent(sources, change), total) < 1e-12


def test_adjoint_of_the_changes(problem: Any, sky: Any, beam_of: Any, form: str) -> None:
    """Re <J v, W r> = <v, J^H W r>, to the precision of the sums."""
    rows = rows_for(problem, n_antenna=3)
    data = data_for(rows)
    rime = Rime(rows, **data, backend="cpu", form=form, extent=0.04)
    sources = full_sky(rows, sky, beam_of, antenna_terms=terms_of(rows))
    change, rng = change_of(sources, n_change=2), np.random.default_rng(22)
    shape = (2, rows.n_row, rows.n_chan, rows.n_corr)
    residual = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    forward = np.sum((rime.tangent(sources, change).conj() * data["weight"] * residual).real, axis=(1, 2, 3))
    back = np.zeros(2)
    gradient = arrays_of(rime.adjoint(sources, residual))
    for name, values in arrays_of(change).items():
        back += np.sum((gradient[name].conj() * values).real.reshape(2, -1), axis=1)
    np.testing.assert_allclose(forward, back, rtol=1e-10)


def test_information_is_the_product_of_the_changes(problem: Any, sky: Any, beam_of: Any) -> None:
    rows = problem(n_antenna=4)
    data = data_for(rows)
    rime = Rime(rows, **data, backend="cpu", extent=0.04)
    sources = full_sky(rows, sky, beam_of, antenna_terms=terms_of(rows)).entries(0, 1).copy()
    change = change_of(sources)
    columns = (np.sqrt(data["weight"]) * rime.tangent(sources, change)).reshape(3, -1)
    # Two ways to sum the same few hundred products.
    np.testing.assert_allclose(
        rime.information(sources, change), (columns.conj() @ columns.T).real, rtol=1e-10
    )


def test_results_do_not_depend_on_threads_or_memory(problem: Any, sky: Any) -> None:
    """Sums of antennas have an order of their own, to the bit."""
    rows = problem(n_antenna=8, n_time=12, n_chan=20)
    sources = sky(rows, n_point=20, antenna_terms=terms_of(rows))
    found = []
    for n_thread, limit in ((1, None), (2, None), (2, "100 kB")):
        numba.set_num_threads(n_thread)
        rime = Rime(rows, **data_for(rows), backend="cpu", extent=0.04, memory_limit=limit)
        found.append(rime.chi2_and_gradient(sources)[1].antenna_terms)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.cuda
@pytest.mark.parametrize("diagonal", [False, True])
def test_gradient_on_a_gpu_with_little_memory_is_the_same(
    tiles_always: None, monkeypatch: pytest.MonkeyPatch, cuda_backend: str, problem: Any, sky: Any, form: str,
    reference: ModuleType, diagonal: bool,
) -> None:  # fmt: skip
    """Slabs cut groups of rows, and blocks of times come again: the sums have an order of their own."""
    from rime_kernels.cuda import antenna_sums

    monkeypatch.setattr(antenna_sums, "LEAST_ROWS", 5)
    rows = rows_for(problem, n_antenna=3, n_time=4)
    terms, data = terms_of(rows, diagonal=diagonal), data_for(rows)
    terms = replace(terms, time_block=np.array([1, 0, 0, 1], np.int32))
    sources = sky(rows, n_point=1, n_gaussian=0, antenna_terms=terms)
    found = []
    for limit in (None, "3 kB" if diagonal else "8 kB"):
        rime = Rime(rows, **data, backend=cuda_backend, form=form, extent=0.04, memory_limit=limit)
        found.append(rime.chi2_and_gradient(sources)[1])
    assert "slabs" in rime.plan(sources)
    for name, values in arrays_of(found[0]).items():
        np.testing.assert_array_equal(values, arrays_of(found[1])[name], err_msg=name)
    rng = np.random.default_rng(14)
    change = rng.normal(size=terms.jones.shape) + 1j * rng.normal(size=terms.jones.shape)
    change = change * np.eye(2) if diagonal else change

    def chi2(x: float) -> np.ndarray:
        result: np.ndarray = reference.chi2(rows, LINEAR, moved(sources, "antenna_terms", x * change), **data)
        return result

    slope = np.sum((found[0].antenna_terms.conj() * change).real, axis=tuple(range(1, change.ndim)))
    # chi2 is of fourth degree in the matrices: differences keep 1e-8.
    np.testing.assert_allclose(slope, reference.derivative(chi2, 0.02), rtol=1e-7)


def test_changes_of_other_shapes_and_off_the_diagonal_are_refused(problem: Any, sky: Any) -> None:
    rows = problem(corr=["XX", "YY"])
    template = np.ones((1, rows.n_row, rows.n_chan, 2), complex)
    rime = Rime(rows, template=template, backend="cpu", extent=0.04)
    sources = sky(rows, 1, template_scale=np.ones((1, 1)), antenna_terms=terms_of(rows, 1, diagonal=True))
    change = change_of(sources)
    with pytest.raises(InputError, match="change off the diagonal, for which templates need all four"):
        rime.tangent(sources, change)
    with pytest.raises(InputError, match=r"change.antenna_terms must have shape \(3, 2, 5, 2, 2, 2\)"):
        rime.tangent(sources, replace(change, antenna_terms=change.antenna_terms[:, :1]))
    with pytest.raises(InputError, match="antenna_terms was given, but the sources have none"):
        rime.tangent(replace(sources, antenna_terms=None), change)
