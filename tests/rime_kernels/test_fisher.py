"""Products with J: J v against differences of explicit sums, its adjoint, J^H W J in closed form."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rime_kernels import Gradient, InputError, Rime, Rows, Sources
from tests.rime_kernels.problems import LINEAR, rows_for

# Changes over three of which visibilities are polynomials of sixth degree, to 1e-8: phases are of 1e4
# wavelengths; those of widths and beams are parts of them, not to lead over the bend of cos3.
SIZES = {
    "lm": 1e-6, "stokes": 0.05, "spectral_terms": 0.01, "shape": 1e-3, "beam_scale": 1e-5, "pointing": 1e-6,
    "template_scale": 0.05, "template_shift": 1e-6,
}  # fmt: skip
# Rounding of phases of some hundred turns, of sums of some hundred terms; float32 rounds each by 1e-7.
ADJOINT = {"double": 1e-12, "single": 1e-5}

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def weight_for(rows: Rows) -> np.ndarray:
    rng = np.random.default_rng(5)
    shape = (rows.n_row, rows.n_chan, rows.n_corr)
    return rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)


def templates_for(rows: Rows, *, shifted: bool) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What a `Rime` takes for two templates, and what sources have of them."""
    rng, shape = np.random.default_rng(8), (2, rows.n_row, rows.n_chan, rows.n_corr)
    given = {"template": random(shape, 9), "template_lm": rng.uniform(-0.02, 0.02, (2, 2))}
    shift = rng.uniform(-1e-3, 1e-3, (2, 2, 2)) if shifted else None
    return given, {"template_scale": rng.normal(size=(2, 2)), "template_shift": shift}


def rime_for(rows: Rows, backend: str = "cpu", **options: Any) -> Rime:
    weight = weight_for(rows)
    given = {"vis": random(weight.shape, 1), "weight": weight, "backend": backend, "extent": 0.04}
    return Rime(rows, **{**given, **options})


def arrays_of(sources: Sources) -> dict[str, np.ndarray]:
    """The arrays that can change, under the names of `Gradient`."""
    names = ("lm", "stokes", "spectral_terms", "shape", "template_scale", "template_shift")
    found = {name: getattr(sources, name) for name in names}
    if sources.beam is not None:
        found |= {"beam_scale": sources.beam.scale, "pointing": sources.beam.pointing}
    return {name: values for name, values in found.items() if values is not None}


def change_for(sources: Sources, n_change: int | None = None, seed: int = 7) -> Gradient:
    """Random changes of everything, so large as `SIZES`."""
    rng, found = np.random.default_rng(seed), {}
    for name, values in arrays_of(sources).items():
        shape = (n_change or sources.n_batch, *values.shape[1:])
        relative = np.abs(values[:1]) if name in ("shape", "beam_scale") else 1.0
        found[name] = SIZES[name] * rng.normal(size=shape) * (relative if name != "beam_scale" else values[0])
    return Gradient(**found)


def moved(sources: Sources, change: Gradient, x: float) -> Sources:
    new = {name: values + x * getattr(change, name) for name, values in arrays_of(sources).items()}
    names = {"beam_scale": "scale", "pointing": "pointing"}
    of_beam = {names[name]: new.pop(name) for name in ("beam_scale", "pointing") if name in new}
    return replace(sources, **new, beam=replace(sources.beam, **of_beam) if of_beam else sources.beam)


def model(
    reference: ModuleType, rows: Rows, sources: Sources, corr: list[str], frame: str, template: Any = None,
    template_lm: Any = None,
) -> np.ndarray:  # fmt: skip
    """The explicit sum, templates included."""
    found: np.ndarray = reference.visibilities(rows, corr, sources, frame)
    for b, t in np.ndindex(*(sources.template_scale.shape if sources.template_scale is not None else (0, 0))):
        shift = np.zeros(2) if sources.template_shift is None else sources.template_shift[b, t]
        for c, nu in enumerate(rows.chan_freq):
            turn = reference.phase_term(rows.uvw, tuple(template_lm[t] + shift), nu)
            turn = turn * np.conj(reference.phase_term(rows.uvw, tuple(template_lm[t]), nu))
            found[b, :, c] += sources.template_scale[b, t] * turn[:, None] * template[t, :, c]
    return found


def check(
    reference: ModuleType, rime: Rime, sources: Sources, corr: list[str] = LINEAR, frame: str = "tangent",
    **template: Any,
) -> None:  # fmt: skip
    """J v against differences, then its adjoint against J v."""
    change = change_for(sources)
    if not sources.polarised:
        change.stokes[..., 1:] = 0.0
    found = rime.tangent(sources, change)
    expected = reference.derivative(
        lambda x: model(reference, rime.rows, moved(sources, change, x), corr, frame, **template), 1.0
    )
    assert np.linalg.norm(found - expected) < 1e-7 * np.linalg.norm(expected)
    adjoint(rime, sources, change)


def adjoint(rime: Rime, sources: Sources, change: Gradient) -> None:
    """<J v, W r> is <v, J^H W r>, each array alone and all together."""
    residual, weight = random((sources.n_batch, *weight_for(rime.rows).shape), 3), weight_for(rime.rows)
    gradient = rime.adjoint(sources, residual)
    size = np.sqrt(np.sum(weight * np.abs(residual) ** 2, axis=(1, 2, 3)))
    for name in ["all", *arrays_of(sources)]:
        some = change if name == "all" else only(change, name)
        seen = rime.tangent(sources, some)
        left = np.sum(weight * (np.conj(seen) * residual).real, axis=(1, 2, 3))
        terms = [getattr(some, each) * getattr(gradient, each) for each in arrays_of(sources)]
        right = np.sum([each.reshape(sources.n_batch, -1).sum(axis=1) for each in terms], axis=0)
        scale = size * np.sqrt(np.sum(weight * np.abs(seen) ** 2, axis=(1, 2, 3)))
        assert (scale > 0.0).all(), name
        assert (np.abs(left - right) < ADJOINT[rime.precision] * scale).all(), name


def only(change: Gradient, name: str) -> Gradient:
    """The change of one array alone."""
    found = {key: None if x is None else x * (key == name) for key, x in vars(change).items()}
    return Gradient(**found)


# ---- J v, and its adjoint


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("beam", ["none", "shared", "pointing"])
@pytest.mark.parametrize("polarised", [True, False])
def test_every_variant(problem, sky, beam_of, reference, form, beam, polarised) -> None:
    rows = rows_for(problem)
    made = None if beam == "none" else beam_of(rows, "cos3", pointing=beam == "pointing")
    sources = sky(rows, beam=made)
    if not polarised:
        sources.stokes[..., 1:] = 0.0
    check(reference, rime_for(rows, form=form), sources)


@pytest.mark.parametrize("kind", ["gaussian", "airy"])
@pytest.mark.parametrize("pointing", [True, False])
def test_beams_and_one_channel(problem, sky, beam_of, reference, kind, pointing) -> None:
    """Vectors along time or rows, whose lanes have times and antennas of their own."""
    rows = rows_for(problem, n_chan=1, n_time=11)
    for form in ("factored", "row"):
        sources = sky(rows, beam=beam_of(rows, kind, pointing=pointing))
        check(reference, rime_for(rows, form=form), sources)


def test_what_is_the_same_for_all_times(problem, sky, beam_of, reference) -> None:
    rows = rows_for(problem)
    made = beam_of(rows, "airy")
    sources = sky(rows, beam=replace(made, pointing=made.pointing[:, :1]))
    check(reference, rime_for(rows), replace(sources, stokes=sources.stokes[:, :1]))


def test_the_other_frame_and_correlations(problem, sky, reference) -> None:
    corr = ["LR", "RR", "V"]
    rows = rows_for(problem, corr=corr)
    check(reference, rime_for(rows, gaussian_frame="uv"), sky(rows), corr, "uv")


@pytest.mark.cuda
@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("pointing", [True, False])
def test_adjoint_on_a_device(cuda_backend, problem, sky, beam_of, form, pointing) -> None:
    rows = rows_for(problem)
    given, scales = templates_for(rows, shifted=pointing)
    sources = sky(rows, beam=beam_of(rows, "cos3", pointing=pointing), **scales)
    sources = sources.entries(0, 1)  # of the simulator, one takes long enough
    adjoint(rime_for(rows, cuda_backend, form=form, **given), sources, change_for(sources))


@pytest.mark.parametrize("shifted", [True, False])
def test_templates(problem, sky, reference, shifted) -> None:
    rows = rows_for(problem)
    given, scales = templates_for(rows, shifted=shifted)
    check(reference, rime_for(rows, **given), sky(rows, **scales), **given)


def test_awkward_places(problem, sky, beam_of, reference) -> None:
    """At the phase centre, circular, without flux, without spectra."""
    rows = rows_for(problem)
    sources = sky(rows, beam=beam_of(rows, "cos3"), spectral_terms=np.zeros((2, 4, 4, 0)))
    sources.lm[:, 0] = sources.lm[:, -1] = 0.0
    sources.stokes[:, :, 1] = 0.0
    sources.shape[:, 0, 1] = sources.shape[:, 0, 0]
    rime, change = rime_for(rows), change_for(sources)
    change.shape[..., 2] *= 1e3  # of an angle that has no effect on one of the two
    expected = reference.derivative(
        lambda x: model(reference, rows, moved(sources, change, x), LINEAR, "tangent"), 1e-3
    )
    found = rime.tangent(sources, change)
    # Steps of a thousandth leave 1e-16 / 1e-3 of visibilities that are some ten times the change.
    assert np.linalg.norm(found - expected) < 1e-7 * np.linalg.norm(expected)


def test_single_precision(backend, problem, sky, beam_of) -> None:
    rows = rows_for(problem)
    sources = sky(rows, beam=beam_of(rows, "gaussian"))
    rime = rime_for(rows, backend, precision="single")
    exact = rime_for(rows).tangent(sources, change_for(sources))
    np.testing.assert_array_equal(rime.tangent(sources, change_for(sources)), exact)
    adjoint(rime, sources, change_for(sources))


def test_adjoint_leaves_the_data_as_they_are(backend, problem, sky) -> None:
    rows = rows_for(problem)
    sources, rime = sky(rows), rime_for(rows, backend)
    before = [rime.chi2(sources) for _ in range(2)]  # the second may be recorded, and played from then on
    residual = random((2, rows.n_row, rows.n_chan, rows.n_corr), 3)
    first = rime.adjoint(sources, residual)
    for _ in range(2):
        np.testing.assert_array_equal(rime.chi2(sources), before[1])
    residual[:, weight_for(rows) == 0.0] = np.nan
    second = rime.adjoint(sources, residual)
    for name in arrays_of(sources):
        np.testing.assert_array_equal(getattr(second, name), getattr(first, name))


def test_adjoint_of_nothing(problem, sky) -> None:
    rows = rows_for(problem)
    sources, rime = sky(rows), rime_for(rows)
    residual = random((2, rows.n_row, rows.n_chan, rows.n_corr), 3)
    some, none = rime.adjoint(sources, residual), rime.adjoint(sources, 0.0 * residual)
    for name in arrays_of(sources):
        # What the gradient leaves of data that are the model: roundings of V - V.
        assert np.abs(getattr(none, name)).max() < 1e-9 * np.abs(getattr(some, name)).max()


def test_many_changes_about_one_sky(problem, sky, beam_of) -> None:
    rows = rows_for(problem)
    sources = sky(rows, n_batch=1, beam=beam_of(rows, "cos3", n_batch=1))
    rime, change = rime_for(rows), change_for(sources, n_change=3)
    found = rime.tangent(sources, change)
    for i in range(3):
        one = Gradient(**{name: x if x is None else x[i : i + 1] for name, x in vars(change).items()})
        np.testing.assert_array_equal(rime.tangent(sources, one)[0], found[i])


def test_nothing_changes(problem, sky) -> None:
    rows = rows_for(problem)
    sources, rime = sky(rows), rime_for(rows)
    nothing = only(change_for(sources), "")
    np.testing.assert_array_equal(rime.tangent(sources, nothing), 0.0)
    empty = sky(rows, n_point=0, n_gaussian=0)
    assert rime.tangent(empty, change_for(empty)).shape == (2, rows.n_row, rows.n_chan, rows.n_corr)
    none = Gradient(**{name: x if x is None else x[:0] for name, x in vars(nothing).items()})
    assert rime.tangent(sources.entries(0, 0), none).shape[0] == 0
    assert rime.information(sources.entries(0, 1), none).shape == (0, 0)


# ---- J^H W J


def test_information_about_fluxes_is_that_of_the_linear_problem(problem, sky, reference, monkeypatch) -> None:
    """Columns of J are the visibilities of sources of 1 Jy: Re(A^H W A)."""
    rows = rows_for(problem)
    sources, rime = sky(rows, n_batch=1), rime_for(rows)
    n = 4 * sources.n_source
    change = only(change_for(sources, n_change=n), "")
    unit = np.eye(n).reshape(n, sources.n_source, 4)
    change.stokes[:] = unit[:, None]
    repeated = {
        name: np.repeat(getattr(sources, name), n, axis=0) for name in ("lm", "spectral_terms", "shape")
    }
    many = replace(sources, **repeated, stokes=change.stokes)
    columns = reference.visibilities(rows, LINEAR, many).reshape(n, -1)
    expected = ((columns.conj() * weight_for(rows).ravel()) @ columns.T).real
    found = rime.information(sources, change)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * np.abs(expected).max())
    monkeypatch.setattr("rime_kernels.derivatives.COLUMN_BYTES", 16 * n * rows.n_chan * rows.n_corr * 3)
    # Three rows at a time: the same sums in another order.
    np.testing.assert_allclose(rime.information(sources, change), found, rtol=0, atol=1e-13 * found.max())


def test_information_about_the_position_of_a_point(problem, sky) -> None:
    """I^2 sum w (2 pi u nu/c)^2, that of the phases; none between a position and the flux of one point."""
    rows = rows_for(problem, corr=["XX", "YY"])
    sources = sky(
        rows, n_batch=1, n_point=1, n_gaussian=0, spectral_terms=np.zeros((1, 1, 4, 0)),
        stokes=np.array([3.0, 0.0, 0.0, 0.0]).reshape(1, 1, 1, 4), lm=np.zeros((1, 1, 2)),
    )  # fmt: skip
    change = Gradient(*(np.zeros((3, *shape)) for shape in ((1, 2), (1, 1, 4), (1, 4, 0), (0, 3))))
    change.lm[0, 0, 0] = change.lm[1, 0, 1] = change.stokes[2, 0, 0, 0] = 1.0
    turns = 2 * np.pi * rows.uvw[:, None, :2] * (rows.chan_freq / 299792458.0)[None, :, None]
    slopes = np.concatenate([3.0 * turns, np.zeros((*turns.shape[:2], 1))], axis=-1)
    weight = weight_for(rows).sum(axis=2)
    expected = np.einsum("rci,rc,rcj->ij", slopes, weight, slopes)
    expected[2, 2] = weight.sum()
    found = rime_for(rows).information(sources, change)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-12)


# ---- calls


def test_errors(problem, sky, beam_of) -> None:
    rows = rows_for(problem)
    sources, rime = sky(rows), rime_for(rows)
    change, residual = change_for(sources), np.zeros((2, rows.n_row, rows.n_chan, rows.n_corr))
    with pytest.raises(InputError, match=r"change.lm must have shape \(2, 4, 2\), got \(2, 2, 4\)"):
        rime.tangent(sources, replace(change, lm=change.lm.transpose(0, 2, 1)))
    with pytest.raises(InputError, match=r"change.beam_scale was given, but the sources have none"):
        rime.tangent(sources, replace(change, beam_scale=np.zeros(2)))
    with pytest.raises(InputError, match=r"change.pointing must have shape"):
        rime.tangent(sky(rows, beam=beam_of(rows, "airy")), replace(change, pointing=np.zeros((2, 1, 1, 2))))
    with pytest.raises(InputError, match="change must have as many entries as the batch has, 2"):
        rime.tangent(sources, change_for(sources, n_change=3))
    with pytest.raises(InputError, match="residual must have shape"):
        rime.adjoint(sources, residual[0])
    with pytest.raises(InputError, match="got an empty batch"):
        rime.adjoint(sources.entries(0, 0), residual[:0])
    with pytest.raises(InputError, match="information is that about one list of sources, got 2 lists"):
        rime.information(sources, change)
    bare = Rime(rows, backend="cpu", extent=0.04)
    assert bare.tangent(sources, change).shape == residual.shape
    with pytest.raises(InputError, match="adjoint needs data"):
        bare.adjoint(sources, residual)
    with pytest.raises(InputError, match="information needs data"):
        bare.information(sources.entries(0, 1), change)
    sources.lm[1, 0] = 0.9
    with pytest.raises(InputError, match="batch entry 1 has impossible values"):
        rime.tangent(sources, change)
