"""Model visibilities that stay on a GPU: sums over cells, chi2 with gains, and slopes, against plain sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rime_kernels import Rime, Rows, Sources
from rime_kernels.arrays.row_cells import RowCells
from rime_kernels.gains.models import HostModel, model_of
from rime_kernels.resident_model import ResidentModel

# Visibilities as in `test_cuda.py`; sums are as good.
TOLERANCE = {"double": 1e-12, "single": 2e-6}

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.usefixtures("cuda_backend", "tiles_always"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
]


def shuffled(rows: Rows) -> Rows:
    """The same rows in an order that is not that of time."""
    order = np.random.default_rng(7).permutation(rows.n_row)
    axes = (each[order] for each in (rows.uvw, rows.antenna1, rows.antenna2, rows.time_index))
    return Rows(*axes, rows.chan_freq, rows.stokes_to_corr, rows.n_antenna, rows.n_time)


def data_for(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    shape = rows.n_row, rows.n_chan, rows.n_corr
    weight = rng.uniform(0.5, 2.0, shape) * (rng.random(shape) > 0.2)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape), weight


def cells_of(rows: Rows) -> tuple[RowCells, np.ndarray]:
    """Cells of baselines at all times, channels 0 and 2 apart from 1; and the cell of each visibility."""
    pairs = np.stack([rows.antenna1, rows.antenna2])
    n_baseline = np.unique(pairs, axis=1).shape[1]
    baseline = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
    block, each = np.array([0, 1, 0], np.int32), 2 * rows.n_corr
    order = np.argsort(baseline, kind="stable")
    starts = np.searchsorted(baseline[order], np.arange(n_baseline + 1))
    cells = RowCells(2, block, order, starts, baseline * each)
    number = (baseline * each)[:, None, None] + (block * rows.n_corr)[:, None] + np.arange(rows.n_corr)
    return cells, number


def numbers_for(n_cell: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gains, and slopes by the sums of cells."""
    rng = np.random.default_rng(9)
    gain, by_cross = (rng.normal(size=n_cell) + 1j * rng.normal(size=n_cell) for _ in range(2))
    return gain, rng.normal(size=n_cell), by_cross


def with_data(rows: Rows, **options: Any) -> Rime:
    vis, weight = data_for(rows)
    return Rime(rows, vis=vis, weight=weight, extent=0.04, **{"backend": "cuda", **options})


def resident_of(rime: Rime, sources: Sources, cells: RowCells) -> ResidentModel:
    resident = rime.cache_model(sources, cells)
    assert resident is not None
    return resident


@pytest.mark.parametrize(
    ("precision", "form", "corr"),
    [("double", "factored", ["XX", "YY"]), pytest.param("single", "row", ["RR"], marks=pytest.mark.thorough)],
)
def test_sums_chi2_and_slopes(problem, sky, reference, error_of, precision, form, corr) -> None:
    rows = shuffled(problem(n_antenna=3, n_time=2, n_chan=3, corr=corr))
    sources, (data, weight) = sky(rows).entries(0, 1), data_for(rows)
    rime, (cells, number) = with_data(rows, precision=precision, form=form), cells_of(rows)
    (model,) = reference.visibilities(rows, corr, sources)
    resident, n_cell = resident_of(rime, sources, cells), number.max() + 1
    cross = weight * data * model.conj()
    of_cells = [
        np.bincount(number.ravel(), each.ravel())
        for each in (weight * np.abs(model) ** 2, cross.real, cross.imag)
    ]
    assert error_of(resident.sums(0.25), 0.25 * np.array(of_cells)) < TOLERANCE[precision]
    gain, by_power, by_cross = numbers_for(n_cell)
    away = data - gain[number] * model
    expected = (weight * np.abs(away) ** 2).sum()
    assert resident.chi2(gain) == pytest.approx(expected, rel=TOLERANCE[precision])
    slope = 2 * by_power[number] * np.abs(gain[number]) ** 2 * model
    slope = slope + np.conj(by_cross * gain)[number] * data
    # The engine's own way back, of residuals from the host: that it is right stands in `test_gradient.py`.
    wanted = rime.adjoint(sources, slope[None])
    found = resident.pulled(gain, by_power, by_cross)
    for name in ("stokes", "lm", "spectral_terms", "shape"):
        # Of sums of both signs, which keep fewer digits than their terms.
        assert error_of(getattr(found, name), getattr(wanted, name)) < 20 * TOLERANCE[precision], name
    # The slopes took the place of the visibilities, which come back; sums repeat to the bit.
    assert resident.chi2(gain) == pytest.approx(expected, rel=TOLERANCE[precision])
    assert np.array_equal(resident.sums(1.0), resident.sums(1.0))


def test_slopes_by_tensor_cores(problem, sky, reference, error_of, monkeypatch) -> None:
    """Of points alone; slopes take the place of V - D there, too."""
    from rime_kernels.cuda.kernels.tiles.parts import TileShape
    from rime_kernels.cuda.launch_shapes.tensor_core_shapes import forced_tensor_cores
    from rime_kernels.cuda.layouts import choice

    monkeypatch.setattr(choice, "LEAST_TENSOR_CORE_FILL", 0.0)
    rows = shuffled(problem(n_antenna=4, n_time=1, n_chan=3, corr=["RR"]))
    sources, (data, weight) = sky(rows, n_gaussian=0).entries(0, 1), data_for(rows)
    sources.stokes[..., 1:] = 0.0
    with forced_tensor_cores(TileShape(2, 32, 4, 32, 1, 0, 8, 1)):
        rime, (cells, number) = with_data(rows, form="factored"), cells_of(rows)
        assert "tensor cores" in rime.plan(sources)
        gain, by_power, by_cross = numbers_for(number.max() + 1)
        found = resident_of(rime, sources, cells).pulled(gain, by_power, by_cross)
    (model,) = reference.visibilities(rows, ["RR"], sources)
    slope = 2 * by_power[number] * np.abs(gain[number]) ** 2 * model
    away = weight * np.conj(slope + np.conj(by_cross * gain)[number] * data)

    def pulled(name: str, change: np.ndarray, step: float) -> float:
        """The slope of Re sum w r^* V along a change of the sources, by differences of explicit sums."""

        def total(x: float) -> np.ndarray:
            moved = replace(sources, **{name: getattr(sources, name) + x * change})
            return np.sum(away * reference.visibilities(rows, ["RR"], moved)[0]).real

        return float(reference.derivative(total, step))

    for name, step in (("stokes", 0.05), ("lm", 1e-6), ("spectral_terms", 1e-2)):
        values = getattr(found, name)
        wanted = np.zeros_like(values)
        for place in np.ndindex(values.shape):
            if name == "spectral_terms" and place[-2] != 0:  # Stokes I alone has flux
                continue
            change = np.zeros_like(values)
            change[place] = 1.0
            wanted[place] = pulled(name, change, step)
        # Differences keep 1e-8, as in `test_gradient.py`.
        assert error_of(values, wanted) < 1e-7, name


def test_two_skies_in_turns(problem, sky) -> None:
    """Each has its own sums, although there is room for the visibilities of one."""
    rows = problem(n_antenna=3, n_time=1, n_chan=3)
    rime, (cells, number) = with_data(rows), cells_of(rows)
    both = [resident_of(rime, sky(rows).entries(b, b + 1), cells) for b in range(2)]
    gain, by_power, by_cross = numbers_for(number.max() + 1)
    first, second = (one.chi2(gain) for one in both)
    assert first != pytest.approx(second, rel=1e-3)
    assert (both[0].chi2(gain), both[1].chi2(gain)) == (first, second)
    # Nor do chi2 of the plain sky and slopes in between change anything.
    sources = sky(rows).entries(0, 1)
    plain = rime.chi2(sources)
    both[0].pulled(gain, by_power, by_cross)
    assert rime.chi2(sources) == plain
    assert both[1].chi2(gain) == second


def test_what_cannot_stay_goes_by_the_host(problem, sky) -> None:
    """Templates, or too little memory: the same sums, of visibilities that come down."""
    rows = problem(n_antenna=3, n_time=1, n_chan=3)
    sources, (data, weight) = sky(rows).entries(0, 1), data_for(rows)
    cells, _ = cells_of(rows)
    tight = with_data(rows, memory_limit=2000)
    assert tight.cache_model(sources, cells) is None
    model = model_of(tight, sources, data, weight, cells)
    assert isinstance(model, HostModel)
    resident = resident_of(with_data(rows), sources, cells)
    np.testing.assert_allclose(model.sums(2.0), resident.sums(2.0), rtol=1e-11, atol=1e-11)
