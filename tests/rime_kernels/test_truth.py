"""Visibilities of CASA and codex-africanus, source by source, reproduced through `predict`."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest

from rime_kernels import Antennas, Options, Spectrum, predict

ARCSEC = np.pi / 648000.0
CORR = {5: "RR", 6: "RL", 7: "LR", 8: "LL", 9: "XX", 10: "XY", 11: "YX", 12: "YY"}
CASES = [f"{n}_{feed}" for n in (7, 27) for feed in ("circ", "lin")]


def simulate(truth: dict[str, Any], sources: list[dict[str, Any]], **options: Any) -> np.ndarray:
    """All of a truth file's samples for some of its sources."""
    axes = [(s.get("maj_fwhm_arcsec") or 0.0, s.get("min_fwhm_arcsec") or 0.0) for s in sources]
    angle = [np.deg2rad(s.get("pa_deg") or 0.0) for s in sources]
    return predict(
        truth["uvw"],
        truth["chan_freq"],
        [(s["l"], s["m"]) for s in sources],
        [s["stokes"] for s in sources],
        spectrum=Spectrum([s["freq_ref"] for s in sources], [[s["alpha"]] for s in sources]),
        shape=np.column_stack([np.array(axes) * ARCSEC, angle]),
        antennas=Antennas(truth["antenna1"], truth["antenna2"], truth["time"]),
        corr=[CORR[int(code)] for code in truth["corr_type"]],
        options=Options(backend="cpu", **options),
    )


def check(truth: dict[str, Any], tolerance: float, error_of: Any, **options: Any) -> None:
    sources = json.loads(str(truth["src"]))
    simulated = partial(simulate, truth, **options)
    for source in sources:
        assert error_of(simulated([source]), truth[f"vis_{source['name']}"]) < tolerance, source["name"]
    assert error_of(simulated(sources), truth["vis_all"]) < tolerance


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("case", CASES)
def test_casa(truth, error_of, case: str, form: str) -> None:
    # CASA writes complex64: 4e-8.
    check(truth(f"casa_{case}"), 1e-7, error_of, form=form)


@pytest.mark.parametrize("form", ["factored", "row"])
@pytest.mark.parametrize("case", CASES)
def test_codex_africanus(truth, error_of, case: str, form: str) -> None:
    # These formulas agree with it to 2e-12 on the far sources, where its phases have most turns.
    check(truth(f"africanus_{case}"), 1e-11, error_of, form=form, gaussian_frame="uv")


@pytest.mark.parametrize("form", ["factored", "row"])
def test_single_precision(truth, error_of, form: str) -> None:
    # 2e-6: float32 sums of 7 terms and sines of float64 phases.
    check(truth("africanus_27_lin"), 2e-6, error_of, form=form, gaussian_frame="uv", precision="single")
