"""Derivatives through beams of 2x2 Jones matrices on a GPU or in Numba's simulator, against the CPU's.

Those of the CPU are compared with differences of explicit sums in `test_jones_gradient.py`, as are a GPU's.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rime_kernels import AntennaTerms, Rime, Rows, Sources, device, register_profile
from rime_kernels.physics.profiles import CODES
from tests.rime_kernels.problems import CIRCULAR, LINEAR

# Of the largest derivative of an array: phases of 1e4 turns; float32 rounds each of some hundred terms,
# and the residuals that they are sums of.
TOLERANCE = {"double": 1e-10, "single": 2e-5}

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.usefixtures("cuda_backend", "tiles_always"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]


def rows_for(problem: Callable[..., Rows], **changes: Any) -> Rows:
    """Few threads where CUDA is simulated: the simulator takes milliseconds for each."""
    sizes = (
        {"n_antenna": 2, "n_time": 2, "n_chan": 2} if device.simulated() else {"n_antenna": 9, "n_chan": 5}
    )
    return problem(**{**sizes, **changes})


def whole_sky(sky: Callable[..., Sources], rows: Rows, kinds: list[int], **changes: Any) -> Sources:
    """A point, a Gaussian and profiles, with rotation measures; and two templates that move."""
    n_profile, rng = len(kinds), np.random.default_rng(4)
    made = sky(rows, n_point=1, n_gaussian=1 + n_profile, **changes)
    n_batch, shape = made.n_batch, made.shape.copy()
    shape[:, 1:, :2] *= 10.0  # so wide that baselines reach first zeros
    return replace(
        made, shape=shape, profile=rng.uniform(0.2, 0.6, (n_batch, n_profile, 8)),
        profile_kind=np.array(kinds, np.int32), template_scale=rng.normal(size=(n_batch, 2)),
        template_shift=rng.normal(scale=1e-3, size=(n_batch, 2, 2)),
        faraday=rng.uniform(0.1, 1.0, (n_batch, made.n_source, 4)) * [30.0, 0.05, 10.0, 3.0],
    )  # fmt: skip


def terms_of(rows: Rows) -> AntennaTerms:
    rng = np.random.default_rng(9)
    shape = 1, 2, rows.n_antenna, 1, 2, 2
    jones = np.eye(2) + 0.3 * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    return AntennaTerms(jones, np.arange(rows.n_time) % 2, np.zeros(rows.n_chan))


def rimes_for(rows: Rows, n_template: int, form: str, precision: str, **options: Any) -> tuple[Rime, Rime]:
    """The same problem on the CPU in double precision, and on the device."""
    rng = np.random.default_rng(5)
    shape = rows.n_row, rows.n_chan, rows.n_corr
    given: dict[str, Any] = {
        "vis": rng.normal(size=shape) + 1j * rng.normal(size=shape),
        "weight": rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2),
        "extent": 0.04, "form": form,
    }  # fmt: skip
    if n_template:
        given["template"] = rng.normal(size=(n_template, *shape)) * (1.0 + 0.5j)
        given["template_lm"] = rng.uniform(-0.02, 0.02, (n_template, 2))
    return Rime(rows, **given, backend="cpu"), Rime(
        rows, **given, backend="cuda", precision=precision, **options
    )


def arrays_of(rime: Rime, sources: Sources, dof: np.ndarray | None = None) -> dict[str, np.ndarray]:
    chi2, gradient = rime.chi2_and_gradient(sources, dof)
    return {"chi2": chi2, **{name: x for name, x in vars(gradient).items() if x is not None}}


def assert_near(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].shape == values.shape, name
        largest = np.abs(values).max(initial=0.0)
        np.testing.assert_allclose(found[name], values, rtol=0, atol=tolerance * largest, err_msg=name)


def two_points(u: float, v: float, east: float, ratio: float) -> complex:
    """Two points `east` apart: a shape of a user's own."""
    turn = 2.0 * math.pi * u * east
    return (1.0 + ratio * complex(math.cos(turn), math.sin(turn))) / (1.0 + ratio)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("form", "precision", "corr"),
    [
        ("factored", "double", LINEAR),
        ("row", "single", CIRCULAR),
        ("factored", "single", LINEAR),
        ("row", "double", CIRCULAR),
    ],
)
def test_all_kinds_of_source_and_templates(problem, sky, jones_beam_of, form, precision, corr) -> None:
    """A shape of a user's own among them, and a source without the beam; chi2 and Student's t."""
    rows = rows_for(problem, corr=corr)
    own = register_profile("two points on a device", two_points)
    beam = jones_beam_of(rows, 1, turned=True, applies=np.array([True, True, False, True]))
    sources = whole_sky(sky, rows, [CODES["disc"], own], n_batch=1, beam=beam)
    cpu, gpu = rimes_for(rows, 2, form, precision)
    for dof in (None, np.array([3.0])):
        assert_near(arrays_of(gpu, sources, dof), arrays_of(cpu, sources, dof), TOLERANCE[precision])


@pytest.mark.thorough
@pytest.mark.parametrize("corr", [CIRCULAR, ["RR", "RL"]])
def test_matrices_outside_of_the_beam(problem, sky, jones_beam_of, corr) -> None:
    """Their derivatives too; and a template that is seen through them."""
    rows = rows_for(problem, corr=corr)
    sources = sky(rows, 1, 1, 1, beam=jones_beam_of(rows, 1), antenna_terms=terms_of(rows))
    n_template = 1 if len(corr) == 4 else 0  # without all correlations matrices would have to be diagonal
    if n_template:
        sources = replace(sources, template_scale=np.ones((1, 1)))
    cpu, gpu = rimes_for(rows, n_template, "factored", "double")
    assert_near(arrays_of(gpu, sources), arrays_of(cpu, sources), TOLERANCE["double"])


@pytest.mark.on_device
@pytest.mark.parametrize("corr", [LINEAR, pytest.param(["LR", "RR"], marks=pytest.mark.thorough)])
def test_what_is_the_same_for_all_and_unpolarised(problem, sky, jones_beam_of, corr) -> None:
    """One time of angles and fluxes, no pointing errors, points alone, a scale for the whole batch."""
    rows = rows_for(problem, corr=corr)
    # Some sources lie beyond the grid, where E changes along its edge alone.
    made = jones_beam_of(rows, pointing=None, scale=np.ones(1), grid=[-0.01, 0.003, -0.035, 0.011])
    beam = replace(made, angle=made.angle[:1], feed_angle=made.feed_angle[:1])
    sources = sky(rows, n_gaussian=0, beam=beam)
    sources = replace(sources, stokes=sources.stokes[:, :1] * [1, 0, 0, 0])
    cpu, gpu = rimes_for(rows, 0, "factored", "double")
    assert_near(arrays_of(gpu, sources), arrays_of(cpu, sources), TOLERANCE["double"])


@pytest.mark.on_device
def test_one_time_of_pointing_errors_and_parts_of_the_rows(problem, sky, jones_beam_of) -> None:
    """The same bits from a recording, and where little memory makes slabs of rows, times cut in two.

    Feeds turn, too: a sum over all times beside those of pointing errors.
    """
    rows = rows_for(problem, n_time=5)
    made = jones_beam_of(rows, 1, turned=True)
    sources = sky(rows, 1, 1, 1, beam=replace(made, pointing=made.pointing[:, :1]))
    cpu, gpu = rimes_for(rows, 0, "row", "double")
    expected = arrays_of(gpu, sources)
    assert_near(expected, arrays_of(cpu, sources), TOLERANCE["double"])
    _, small = rimes_for(rows, 0, "row", "double", memory_limit=20000)
    for rime in (small,) if device.simulated() else (small, gpu, gpu, gpu):  # the simulator records nothing
        for name, values in arrays_of(rime, sources).items():
            np.testing.assert_array_equal(values, expected[name], err_msg=name)
    if device.simulated():
        return
    # A recording does not outlive its beam.
    made = jones_beam_of(rows, 1, seed=5)
    other = replace(sources, beam=replace(made, pointing=made.pointing[:, :1]))
    assert_near(arrays_of(gpu, other), arrays_of(cpu, other), TOLERANCE["double"])


def test_one_bad_entry_is_nan_and_spoils_no_other(problem, sky, jones_beam_of) -> None:
    rows = rows_for(problem)
    sources = sky(rows, n_point=1, n_gaussian=0, beam=jones_beam_of(rows)).copy()
    _, gpu = rimes_for(rows, 0, "factored", "double")
    expected = arrays_of(gpu, sources)
    sources.beam.pointing[1, 0, 0] = np.nan
    with np.errstate(invalid="ignore"):  # the simulator's arithmetic warns of NaN
        found = arrays_of(gpu, sources)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name][0], values[0], err_msg=name)
    assert np.isnan(found["chi2"][1])
    assert np.isnan(found["stokes"][1]).any()


@pytest.mark.parametrize("form", ["factored", pytest.param("row", marks=pytest.mark.on_device)])
def test_profiles_in_visibilities(problem, sky, jones_beam_of, reference, error_of, form) -> None:
    """The kernel over tiles of antennas leaves them to the one over rows."""
    rows = rows_for(problem)
    sources = whole_sky(sky, rows, [CODES["disc"], CODES["ring"]], n_batch=1, beam=jones_beam_of(rows, 1))
    # The explicit sums know no rotation measures, and of these shapes no parameters.
    changes = {"profile": np.zeros((1, 2, 8)), "faraday": None}
    sources = replace(sources, template_scale=None, template_shift=None, **changes)
    _, gpu = rimes_for(rows, 0, form, "double")
    expected = reference.visibilities(rows, LINEAR, sources)
    assert error_of(gpu.predict(sources), expected) < 1e-11  # phases of 1e4 turns
