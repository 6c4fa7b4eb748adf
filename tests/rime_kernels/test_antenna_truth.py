"""Jones matrices of antennas against visibilities of codex-africanus and eht-imaging."""

import json
from typing import Any

import numpy as np
import pytest

from rime_kernels import AntennaTerms, Rime, Rows, Sources, stokes_to_corr

CORR = {5: "RR", 6: "RL", 7: "LR", 8: "LL", 9: "XX", 10: "XY", 11: "YX", 12: "YY"}
UAS = np.pi / (180.0 * 3600.0e6)
# float64: phases of 1e4 turns. float32: sums of a few terms, and of sines of float64 phases.
TOLERANCE = {"double": 1e-10, "single": 2e-6}


def rows_of(truth: dict[str, Any], n_antenna: int) -> Rows:
    corr = [CORR[int(code)] for code in truth["corr_type"]]
    index = truth["time_index"]
    return Rows(
        truth["uvw"], truth["antenna1"], truth["antenna2"], index, truth["chan_freq"], stokes_to_corr(corr),
        n_antenna, int(index.max()) + 1,
    )  # fmt: skip


def flat_sources(lm: Any, stokes: Any, shape: Any, n_gaussian: int, **changes: Any) -> Sources:
    """Sources of flat spectra, points first."""
    n, shapes = len(lm), np.reshape(shape, (-1, 3))
    return Sources(
        np.reshape(lm, (1, n, 2)), np.reshape(stokes, (1, 1, n, 4)), np.ones(n), np.zeros((1, n, 4, 0)),
        np.ones(n, bool), shapes[n - n_gaussian :][None] if n_gaussian else np.zeros((1, 0, 3)), **changes,
    )  # fmt: skip


def terms_of(jones: np.ndarray) -> AntennaTerms:
    """Matrices (n_time, n_antenna, n_chan, 2, 2), a block for each time and channel."""
    return AntennaTerms(jones[None], np.arange(jones.shape[0]), np.arange(jones.shape[2]))


@pytest.mark.parametrize("precision", ["double", pytest.param("single", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("form", ["factored", "row"])
def test_codex_africanus(truth: Any, error_of: Any, backend: str, form: str, precision: str) -> None:
    """Random 2x2 gains of each time, antenna and channel, of sources and of given visibilities."""
    of = truth("jones/africanus_jones_random")
    rows = rows_of(of, of["die"].shape[1])
    shape = (rows.n_row, rows.n_chan, 4)
    terms, is_gaussian = terms_of(of["die"]), of["gauss_maj_min_pa"][:, 0] > 0.0
    order = np.argsort(is_gaussian, kind="stable")
    sky = flat_sources(
        of["lm"][order], of["stokes"][order], of["gauss_maj_min_pa"][order], int(is_gaussian.sum()),
        antenna_terms=terms,
    )  # fmt: skip
    options: dict[str, Any] = {"backend": backend, "form": form, "precision": precision, "extent": 0.04}
    options["gaussian_frame"] = "uv"  # of codex-africanus
    found = Rime(rows, **options).predict(sky)[0]
    assert error_of(found, of["vis_die"].reshape(shape)) < TOLERANCE[precision]
    template = np.stack([of["vis_dde"].reshape(shape), of["base_vis"].reshape(shape)])
    rime = Rime(rows, template=template, **options)
    for name, scale in (("vis_dde_die", [1.0, 0.0]), ("vis_dde_die_base", [1.0, 1.0])):
        nothing = flat_sources(
            np.zeros((0, 2)), np.zeros((0, 4)), np.zeros((0, 3)), 0,
            template_scale=np.array([scale]), antenna_terms=terms,
        )  # fmt: skip
        assert error_of(rime.predict(nothing)[0], of[name].reshape(shape)) < TOLERANCE[precision], name


@pytest.mark.parametrize("name", ["vis_ideal", "vis_fr", "vis_fr_d", "vis_fr_d_g", "vis_d_frcal"])
def test_eht_imaging(truth: Any, error_of: Any, backend: str, name: str) -> None:
    """G D P of eight stations with mixed mounts and circular feeds, at eht-imaging's own angles."""
    of = truth("jones/eht")
    rows, phi = rows_of(of, 8), of["field_rotation"]
    one, nothing = np.ones_like(phi), np.zeros_like(phi)

    def matrix(*elements: np.ndarray) -> np.ndarray:
        return np.stack([x.astype(complex) for x in elements], axis=-1).reshape(*phi.shape, 2, 2)

    turned = matrix(np.exp(-1j * phi), nothing, nothing, np.exp(1j * phi))
    leakage = matrix(one, of["d_r"] * one, of["d_l"] * one, one)
    gains = matrix(of["gain"][..., 0], nothing, nothing, of["gain"][..., 1])
    jones = {
        "vis_ideal": matrix(one, nothing, nothing, one),
        "vis_fr": turned,
        "vis_fr_d": leakage @ turned,
        "vis_fr_d_g": gains @ leakage @ turned,
        "vis_d_frcal": turned.conj() @ leakage @ turned,
    }[name]
    parts = sorted(json.loads(str(of["src"])), key=lambda part: part["type"] == "gauss")
    sky = flat_sources(
        [(part["x_uas"] * UAS, part["y_uas"] * UAS) for part in parts], [part["stokes"] for part in parts],
        [(part.get("maj_uas", 0.0) * UAS, part.get("min_uas", 0.0) * UAS, np.deg2rad(part.get("pa_deg", 0.0)))
         for part in parts], 1, antenna_terms=terms_of(jones[:, :, None]),
    )  # fmt: skip
    # 7e-13 of eht-imaging's own pi, and phases of 1e3 turns here.
    assert error_of(Rime(rows, backend=backend, extent=1e-9).predict(sky)[0], of[name]) < 1e-11
