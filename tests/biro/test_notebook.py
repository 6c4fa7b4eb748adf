"""The notebooks run from their first cell to their last, and are stored without outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def executed(name, folder, shorter=None):
    """What a notebook prints, and how many pictures it shows; `shorter`: texts of its code to be replaced."""
    import nbclient
    import nbformat

    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    nbformat.validate(notebook)
    for old, new in (shorter or {}).items():
        (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and old in cell.source]
        cell.source = cell.source.replace(old, new)
    client = nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(folder)}})
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    tables = (re.sub("<[^>]+>", " ", output.get("data", {}).get("text/html", "")) for output in outputs)
    shown = "\n".join([*(output.get("text", "") for output in outputs), *tables])
    return shown, sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [", n_tau=20, tau_change=0.2", pytest.param("", marks=pytest.mark.thorough)],
    ids=["few", "all"],
)
def test_the_quickstart_runs(tmp_path, options):
    """With fewer steps than emcee takes otherwise."""
    shorter = {"progress=False)": f"progress=False{options})"}
    shown, n_picture = executed("quickstart.ipynb", tmp_path, shorter)
    assert "core.fwhm" in shown
    assert "NOT CONVERGED" not in shown
    # Corner plot, data against model, residuals.
    assert n_picture == 3


@pytest.mark.slow
def test_3c273_in_25_lines(data_dir, tmp_path, monkeypatch):
    """Compare with least squares with weights of 1, whose errors are scaled to the residual."""
    monkeypatch.setenv("BIRO_TEST_DATA", str(data_dir))
    shown, n_picture = executed("3c273.ipynb", tmp_path, {"seed=1": "seed=1, n_tau=20, tau_change=0.2"})
    assert n_picture == 2  # data, model and residual; corner
    assert "THE MODEL DOES NOT FIT" in shown
    expected = {"core.I": 29.916, "jet.east": -13.929, "jet.north": -15.461, "jet.I": 3.374, "jet.pa": 45.84}
    errors = {"core.I": 0.005, "jet.east": 0.003, "jet.north": 0.003, "jet.I": 0.006, "jet.pa": 0.21}
    for name, value in expected.items():
        median = float(re.search(rf"^ *{name} +\S+ +(-?\d+\.\d+)", shown, flags=re.M)[1])
        # There the core is a Gaussian of 0.05 arcsec whose position is free: fluxes differ by two errors.
        assert abs(median - value) < 3 * errors[name], name


USUAL = "n_draw=800, n_tune=250"
FEW = "n_chain=2, n_draw=100, n_tune=60"


@pytest.mark.slow
@pytest.mark.parametrize("steps", [FEW, pytest.param(USUAL, marks=pytest.mark.thorough)], ids=["few", "all"])
def test_pointing_errors_and_fluxes_together(tmp_path, steps):
    """As Lochner et al. (2015): 103 parameters with honest intervals, and biased fluxes without.

    With few draws it says that these are not enough.
    """
    pytest.importorskip("nutpie", reason="nutpie is not installed")
    shown, n_picture = executed("pointing_errors.ipynb", tmp_path, {USUAL: steps})
    assert ("NOT CONVERGED" in shown) == (steps == FEW)
    assert n_picture == 2
    number = r"(\d+(?:\.\d+)?)"
    (in_68,), (in_95,) = (re.findall(rf"within {level}%: {number}% of 103", shown) for level in (68, 95))
    # Parameters depend on each other: normal draws with the covariance of the maximum scatter by 11 and 5 %.
    assert abs(float(in_68) - 68) < 3 * 11
    assert float(in_95) > 95 - 3 * 5
    ((rms, _),) = re.findall(rf"^pulls: rms {number}, largest {number}$", shown, flags=re.M)
    assert float(rms) < 1.3  # 1, with some 10 % of scatter
    (together,) = re.findall(rf"^all together: {number}, expected 103 \+- 14$", shown, flags=re.M)
    if steps == USUAL:
        # Four standard deviations; the covariance of some 1000 effective draws makes a tenth more of it.
        assert 103 - 4 * 14 < float(together) < 1.1 * 103 + 4 * 14
    ((rms, largest),) = re.findall(rf"ignored: rms {number}, largest {number}", shown)
    assert float(rms) > 2.0  # 17 fluxes that are not biased: 1, with a scatter of 0.17
    assert float(largest) > 4.0


@pytest.mark.slow
def test_a_turning_beam_with_leakage(tmp_path):
    """The whole equation finds the source; without leakage or with a beam that stands still it fails."""
    pytest.importorskip("katbeam", reason="katbeam is not installed")
    shown, n_picture = executed("turning_beam.ipynb", tmp_path)
    assert n_picture == 4
    pulls = {
        label: [float(pull) for pull in re.findall(r"[+-]\d+\.\d", line)]
        for label, line in re.findall(r"^pulls, (.*?): (.*)$", shown, flags=re.M)
    }
    assert {label: len(found) for label, found in pulls.items()} == dict.fromkeys(pulls, 6)
    # Six numbers of one simulation, normal about the truth: none is off by more than three errors.
    assert max(map(abs, pulls["whole equation"])) < 3.0
    assert max(map(abs, pulls["no leakage"])) > 3.0
    assert max(map(abs, pulls["beam stands still"])) > 3.0
    ((rms,),) = [re.findall(r"28 numbers, pulls rms (\d+\.\d+)$", shown, flags=re.M)]
    assert float(rms) < 2.0  # 1 on average; what is common to all antennas moves all 28 together
    noise = {
        label: float(factor)
        for label, factor in re.findall(r"^(.*): \d+ parameters, noise x (\S+)", shown, re.M)
    }
    # 15120 real numbers determine the noise to 0.6 %: four errors.
    assert abs(noise["whole equation"] - 1) < 0.024
    assert min(noise["no leakage"], noise["beam stands still"]) > 1.05


@pytest.mark.slow
def test_an_image_and_how_far_to_believe_it(tmp_path):
    """With few samples, which say that they are not converged; fluxes are right all the same."""
    pytest.importorskip("nifty", reason="nifty is not installed")
    shown, n_picture = executed(
        "image.ipynb", tmp_path, {"n_samples=16": "n_samples=4, n_iterations=2, n_pairs=2"}
    )
    assert n_picture == 4  # map, samples with errors, samples beside the truth, profile
    fluxes = re.findall(r"^(core|lobe|whole image): (\S+) \+- \S+ Jy, truth (\S+) Jy$", shown, flags=re.M)
    assert len(fluxes) == 3
    for _, flux, truth in fluxes:
        # 2106 complex samples with 0.3 Jy: 7 mJy, and the unknown structure some times that.
        assert float(flux) == pytest.approx(float(truth), abs=0.05)
    assert "THE IMAGE DOES NOT FIT" in shown
    # A source of 1 Jy, 200 arcsec east and 150 south.
    assert re.search(
        r"SOURCE OUTSIDE: about (9\d\d mJy|1 Jy) lie 3\.33 arcmin east and 2\.5 arcmin south", shown
    )


@pytest.mark.slow
def test_m87_in_ten_minutes(data_dir, tmp_path, monkeypatch):
    """With few starts and draws: the published diameter is 42 +- 3 uas, the ring is brighter in the south."""
    pytest.importorskip("nutpie", reason="nutpie is not installed")
    monkeypatch.setenv("BIRO_TEST_DATA", str(data_dir))
    few = {
        '"n_chain": 4, "n_tune": 400, "n_draw": 1000': '"n_chain": 2, "n_tune": 30, "n_draw": 20',
        "maximise(closures, seed=1)": "maximise(closures, seed=1, starts=3)",
    }
    shown, n_picture = executed("m87.ipynb", tmp_path, few)
    assert n_picture == 4  # closure phases, closure amplitudes, gains, ring
    assert "closures: 103 independent closure phases and 86 log closure amplitudes" in shown
    found = re.findall(r"^(closures|gains): diameter (\S+) -\S+ \+\S+ uas, beta_1 (\S+)$", shown, flags=re.M)
    assert [label for label, *_ in found] == ["closures", "gains"]
    for _, diameter, side in found:
        # 45.4 +- 0.4 and 44.7 +- 0.3; -0.23 and -0.24, +- 0.014.
        assert 42 < float(diameter) < 47
        assert -0.32 < float(side) < -0.15
    # 189 closures less 14 parameters: 1.19 * 189 / 175 = 1.29 at the maximum.
    (reduced,) = re.findall(r"chi2/dof (\S+) \(189 closures\)", shown)
    assert 1.0 < float(reduced) < 1.45


@pytest.mark.slow
def test_how_many_sources(tmp_path):
    """With few draws, which the result says; the sources are there all the same."""
    few = "sky, seed=1, n_effective=20, max_steps=40"
    shorter = {
        f"{data}, sky, seed=1, n_effective=400": f"{data}, {few}"
        for data in ("observation", "observe(nothing)")
    }
    shown, n_picture = executed("how_many_sources.ipynb", tmp_path, shorter)
    assert n_picture == 2  # number, field
    assert shown.count("NOT CONVERGED") == 1
    nearest = dict(re.findall(r"^([abcd]): .* nearest entry field_\d+: P (\S+),", shown, flags=re.M))
    # Of 44, 22, 15 and 6 times the noise of the image: certain, but for the last.
    assert all(float(nearest[name]) > 0.95 for name in "abc")
    empty = re.findall(r"^0 +(\d\.\d+)", shown, flags=re.M)[-1]
    # Posterior odds of 0 and 1 are 1.24 of a long run; 40 steps of 8 walkers know it to 0.1.
    assert 0.25 < float(empty) < 0.75
