"""Image-domain gridding against other programs, the other half of this package, and itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba import get_num_threads, set_num_threads

import rime_kernels
from rime_kernels import Antennas, Beam, InputError, Options, Rows, stokes_to_corr
from rime_kernels.idg import Idg, ImageGrid
from rime_kernels.wprojection import WProjection
from tests.rime_kernels.problems import relative

C = 299792458.0


def tracks(n_antenna: int = 7, n_time: int = 20, n_chan: int = 8, corr: list[str] | None = None) -> Rows:
    """An array of 3 km seen for some hours, a quarter of the rows missing, the others in any order."""
    rng = np.random.default_rng(3)
    position = rng.normal(size=(n_antenna, 3)) * [700.0, 700.0, 30.0]
    hour = np.linspace(-0.7, 0.7, n_time)
    x, y, z = position.T
    h = hour[:, None]
    turned = np.stack(
        [np.cos(h) * x - np.sin(h) * y, 0.6 * (np.sin(h) * x + np.cos(h) * y) + 0.8 * z,
         -0.8 * (np.sin(h) * x + np.cos(h) * y) + 0.6 * z], axis=-1,
    )  # fmt: skip
    p, q = np.triu_indices(n_antenna)
    time, pair = np.divmod(rng.permutation(n_time * p.size)[: (3 * n_time * p.size) // 4], p.size)
    uvw = turned[time, p[pair]] - turned[time, q[pair]]
    freq = 1.2e9 + 2e6 * np.arange(n_chan)
    matrix = stokes_to_corr(corr or ["XX", "XY", "YX", "YY"])
    return Rows(uvw, p[pair], q[pair], time, freq, matrix, n_antenna, n_time)


def fitting(rows: Rows, n: int) -> ImageGrid:
    """Pixels a tenth smaller than the longest baseline needs."""
    return ImageGrid(n, 0.45 / (np.abs(rows.uvw[:, :2]).max() * rows.chan_freq.max() / C))


@pytest.mark.parametrize("name", ["deltas", "blobs"])
@pytest.mark.parametrize(
    ("kind", "accuracy"), [*((Idg, x) for x in (1e-3, 1e-5, 1e-6)), (WProjection, 1e-5), (WProjection, 1e-6)]
)
def test_the_images_that_wsclean_predicted(
    truth: Callable[[str], dict[str, np.ndarray]], name: str, kind: Any, accuracy: float
) -> None:
    t = truth("wsclean_wgridder_27_lin")
    rows = Rows.from_columns(
        t["uvw"], t["antenna1"], t["antenna2"], t["time"], t["chan_freq"], stokes_to_corr(["XX"])
    )
    gridder = kind(rows, ImageGrid(512, float(t["cell_rad"])), accuracy=accuracy, backend="cpu")
    found = gridder.predict(t[f"image_{name}"][None])[..., 0]
    # The program itself is 3.6e-7 from the direct sum.
    assert relative(found, t[f"vis_{name}"]) < accuracy + 4e-7


@pytest.mark.parametrize(("accuracy", "precision"), [(1e-4, "single"), (1e-5, "single"), (1e-6, "double")])
def test_ducc_on_a_wide_field(accuracy: float, precision: Any) -> None:
    ducc0 = pytest.importorskip("ducc0")
    rows, rng = tracks(corr=["I"]), np.random.default_rng(4)
    rows = replace(rows, uvw=rows.uvw * [0.14, 0.14, 1.0])
    grid = ImageGrid(400, 2.2e-4)  # 5 degrees, many W-layers
    image = rng.normal(size=(1, 400, 400))
    # Its phase is -u a - v b + w (n - 1), a and b growing with the first and second index.
    uvw, given = rows.uvw * [1.0, -1.0, 1.0], np.ascontiguousarray(image[0].T)
    options = {
        "uvw": uvw, "freq": rows.chan_freq, "pixsize_x": grid.cell, "pixsize_y": grid.cell, "epsilon": 1e-10,
        "do_wgridding": True, "divide_by_n": False,
    }  # fmt: skip
    expected = ducc0.wgridder.dirty2vis(dirty=given, **options)
    idg = Idg(rows, grid, accuracy=accuracy, precision=precision, backend="cpu")
    found = idg.predict(image)
    assert relative(found[..., 0], expected) < accuracy
    vis = (rng.normal(size=(*found.shape, 2)) @ [1.0, 1.0j]).astype(np.complex128)
    dirty = ducc0.wgridder.vis2dirty(vis=vis[..., 0], npix_x=400, npix_y=400, **options)
    assert relative(idg.grid(vis)[0], dirty.T) < accuracy


@pytest.mark.parametrize("accuracy", [1e-3, 1e-5])
def test_one_pixel_is_a_point_source(accuracy: float) -> None:
    # Beams with pointing errors that change from time to time, polarised, w not 0.
    rows, rng = tracks(), np.random.default_rng(5)
    grid = fitting(rows, 256)
    x, y, stokes = 31, 200, np.array([1.5, -0.4, 0.3, 0.2])
    lm = np.array([-(x - 128) * grid.cell, (y - 128) * grid.cell])
    pointing = rng.normal(scale=0.003, size=(1, 20, 7, 2))
    fwhm = 0.7 * 256 * grid.cell
    # An image has one beam for all channels: those of its reference frequency.
    for chan in (0, 7):
        freq = rows.chan_freq[chan]
        beam = Beam("gaussian", np.array([1.0 / (fwhm * freq)]), pointing)
        expected = rime_kernels.predict(
            rows.uvw, [freq], [lm], [stokes], beam=beam,
            antennas=Antennas(rows.antenna1, rows.antenna2, rows.time_index), options=Options(backend="cpu"),
        )  # fmt: skip
        one = Rows(
            rows.uvw,
            rows.antenna1,
            rows.antenna2,
            rows.time_index,
            np.array([freq]),
            rows.stokes_to_corr,
            7,
            20,
        )
        idg = Idg(
            one, grid, accuracy=accuracy, backend="cpu", aterm_slot=np.arange(20), aterm_support=4.0
        )  # fmt: skip
        l, m = idg.lm
        r2 = sum((axis - pointing[0, ..., k, None, None]) ** 2 for k, axis in enumerate((l, m)))
        image = np.zeros((4, 256, 256))
        image[:, y, x] = stokes
        found = idg.predict(image, np.exp(-2.0 * np.log(2.0) * r2 / fwhm**2))
        assert relative(found, expected) < accuracy


@pytest.mark.parametrize(("n_row", "n_chan"), [(1, 1), (1, 70), (40, 1), (3, 300)])
@pytest.mark.parametrize("corr", [["I"], ["XX", "YY"], ["RR", "RL", "LR"]])
def test_problems_of_every_size(reference: ModuleType, n_row: int, n_chan: int, corr: list[str]) -> None:
    rng = np.random.default_rng(6)
    uvw = rng.normal(scale=100.0, size=(n_row, 3))
    freq = 1.0e9 + 1e6 * np.arange(n_chan)
    rows = Rows(uvw, np.zeros(n_row), np.ones(n_row), np.zeros(n_row), freq, stokes_to_corr(corr), 2, 1)
    for n in (2, 50):
        grid, n_stokes = fitting(rows, n), 1 if corr == ["I"] else 4
        image = rng.normal(size=(n_stokes, n, n))
        for precision, tolerance in (("single", 1e-4), ("double", 1e-7)):
            idg = Idg(rows, grid, accuracy=tolerance, precision=precision, backend="cpu")  # type: ignore[arg-type]
            expected = reference.direct_image(rows, corr, image, grid)
            assert relative(idg.predict(image), expected) < tolerance


@pytest.mark.parametrize("order", ["down", "shuffled"])
def test_channels_in_any_order(order: str) -> None:
    rows, rng = tracks(n_chan=40), np.random.default_rng(11)
    grid = fitting(rows, 64)
    image = rng.normal(size=(4, 64, 64))
    chans = np.arange(40)[::-1] if order == "down" else rng.permutation(40)
    other = replace(rows, chan_freq=rows.chan_freq[chans])
    found, expected = (Idg(each, grid, accuracy=1e-5, backend="cpu").predict(image) for each in (other, rows))
    # Both are within 1e-5 of the sum over pixels.
    assert relative(found, expected[:, chans]) < 2e-5


def test_an_image_as_wide_as_the_sky(reference: ModuleType) -> None:
    # 80 degrees: the padded field reaches beyond the horizon, and w within a subgrid is far from a parabola.
    rng = np.random.default_rng(7)
    uvw = rng.uniform(-30.0, 30.0, (60, 3))
    rows = Rows(uvw, np.zeros(60), np.ones(60), np.zeros(60), np.array([2e8]), stokes_to_corr(["I"]), 2, 1)
    grid = ImageGrid(64, 1.3 / 64)
    image = rng.normal(size=(1, 64, 64))
    expected = reference.direct_image(rows, ["I"], image, grid)
    for accuracy in (1e-3, 1e-5):
        idg = Idg(rows, grid, accuracy=accuracy, backend="cpu")
        assert relative(idg.predict(image), expected) < accuracy
        assert np.all(np.hypot(*idg.lm) < 1.0)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rows, rng = tracks(), np.random.default_rng(8)
    grid, n_thread = fitting(rows, 128), get_num_threads()
    idg = Idg(rows, grid, accuracy=1e-4, backend="cpu")
    image = rng.normal(size=(4, 128, 128))
    vis = rng.normal(size=(rows.n_row, rows.n_chan, 4, 2)) @ [1.0, 1.0j]
    found = []
    try:
        for n in (1, n_thread, 1):
            set_num_threads(n)
            found.append((idg.predict(image), idg.grid(vis, n_stokes=4)))
    finally:
        set_num_threads(n_thread)
    for predicted, gridded in found[1:]:
        assert np.array_equal(predicted, found[0][0])
        assert np.array_equal(gridded, found[0][1])


def test_a_memory_limit_changes_nothing_or_is_refused() -> None:
    rows = tracks()
    grid, image = fitting(rows, 128), np.random.default_rng(9).normal(size=(1, 128, 128))
    free = Idg(rows, grid, accuracy=1e-4, backend="cpu")
    assert np.array_equal(
        Idg(rows, grid, accuracy=1e-4, backend="cpu", memory_limit="20 MB").predict(image),
        free.predict(image),
    )
    tight = Idg(rows, grid, accuracy=1e-4, backend="cpu", memory_limit="1 MB")
    for call in (lambda: tight.predict(image), lambda: tight.grid(np.zeros((rows.n_row, rows.n_chan, 4)))):
        with pytest.raises(InputError, match=r"needs [\d.]+ MB, more than the memory limit of 1 MB"):
            call()


@pytest.mark.parametrize("kind", [Idg, WProjection])
def test_what_has_no_weight_may_be_anything(kind: Any) -> None:
    rows, rng = tracks(), np.random.default_rng(10)
    gridder = kind(rows, fitting(rows, 64), accuracy=1e-4, backend="cpu")
    vis = rng.normal(size=(rows.n_row, rows.n_chan, 4, 2)) @ [1.0, 1.0j]
    weight = (rng.random(vis.shape) < 0.7).astype(float)
    spoilt = np.where(weight > 0.0, vis, np.nan)
    assert np.array_equal(
        gridder.grid(spoilt, weight), gridder.grid(np.where(weight > 0.0, vis, 0.0), weight)
    )
    # Types are the caller's: what float32 keeps is the same in both.
    low = vis.astype(np.complex64), weight.astype(np.float32)
    assert np.array_equal(gridder.grid(*low), gridder.grid(low[0].astype(np.complex128), weight))
    with pytest.raises(InputError, match="finite where the weight"):
        gridder.grid(np.where(weight > 0.0, np.nan, vis), weight)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda idg, ok: idg.predict(ok["image"][0]), r"image must have shape \(stokes, 64, 64\)"),
        (lambda idg, ok: idg.predict(np.zeros((2, 64, 64))), r"1 \(I\) or 4"),
        (lambda idg, ok: idg.predict(np.full((1, 64, 64), np.nan)), "image must be finite"),
        (lambda idg, ok: idg.predict(ok["image"] * 1j), "image must be an array of real numbers"),
        (lambda idg, ok: idg.predict(ok["image"], np.ones((1, 7, 3, 3))), "screens must have shape"),
        (lambda idg, ok: idg.predict(ok["image"], ok["screens"] * np.inf), "screens must be finite"),
        (lambda idg, ok: idg.grid(ok["vis"][:, :2]), "vis must have shape"),
        (lambda idg, ok: idg.grid(ok["vis"], ok["vis"].real[:2]), "weight must have shape"),
        (lambda idg, ok: idg.grid(ok["vis"], ok["vis"].real - 1), "weight must be at least 0"),
        (lambda idg, ok: idg.grid(ok["vis"], n_stokes=3), "n_stokes must be 1"),
    ],
)
def test_wrong_calls_are_refused(call: Callable[[Idg, dict[str, np.ndarray]], Any], words: str) -> None:
    rows = tracks()
    idg = Idg(rows, fitting(rows, 64), accuracy=1e-3, backend="cpu")
    size = idg.lm[0].shape[0]
    ok = {
        "image": np.ones((1, 64, 64)),
        "vis": np.zeros((rows.n_row, rows.n_chan, 4), complex),
        "screens": np.ones((1, 7, size, size)),
    }
    with pytest.raises(InputError, match=words):
        call(idg, ok)


def test_matrices_need_feeds() -> None:
    rows = tracks(corr=["I", "Q"])
    idg = Idg(rows, fitting(rows, 64), accuracy=1e-3, backend="cpu")
    size = idg.lm[0].shape[0]
    with pytest.raises(InputError, match="2 x 2 screens act on feeds"):
        idg.predict(np.ones((1, 64, 64)), np.ones((1, 7, size, size, 2, 2)))
