"""Evidences against known ones, again and again: errors say what the scatter is (docs/trust.md has more)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gaussian_likelihood import Flat, GaussianLikelihood
from scipy import stats

from biro.inference.samplers.sampling import sample

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    """A program of the benchmarks as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name: str):
        from importlib import import_module

        return import_module(name)

    return load


def three_parameters() -> GaussianLikelihood:
    covariance = np.array([[0.04, 0.01, 0.0], [0.01, 0.09, -0.02], [0.0, -0.02, 0.01]])
    return GaussianLikelihood([Flat(-5, 5, name) for name in "abc"], [1.0, -2.0, 0.5], covariance)


@pytest.mark.parametrize(("sampler", "repeats"), [("dynesty", 8), ("dynesty-dynamic", 5)])
def test_pulls_of_the_evidence(sampler, repeats):
    options = {"n_live": 40, "batch": 16, "dlogz": 0.1}
    options |= {"n_effective": 400} if sampler == "dynesty-dynamic" else {}
    pulls = []
    for seed in range(1, repeats + 1):
        likelihood = three_parameters()
        posterior = sample(likelihood, sampler, seed=seed, progress=False, **options)
        # Of the baseline at least: what is compressed by H nat with n points scatters by sqrt(H / n).
        least = np.sqrt(posterior.diagnostics["information_nat"] / options["n_live"])
        assert posterior.log_evidence_err > 0.999 * least
        pulls.append((posterior.log_evidence - likelihood.log_evidence) / posterior.log_evidence_err)
    square = np.sum(np.square(pulls))
    # Honest errors: a chi-squared of so many; in one case of a thousand they would fail on either side.
    low, high = stats.chi2.ppf([0.0005, 0.9995], repeats)
    assert low < square < high, pulls


def test_closed_forms_of_the_benchmark_agree_with_each_other(benchmark):
    """Written-out phases and linear algebra against the likelihood, importance sampling and quadrature."""
    evidence = benchmark("evidence")
    for problem in ("fluxes, uniform", "fluxes, normal"):
        known = evidence.PROBLEMS[problem]()
        line = evidence.one_run((problem, "none", 1, known))
        # ln L is quadratic, so that only the tails of the proposal make the weights differ.
        assert abs(line["log_evidence"] - known) < 4.0 * line["error"]
        assert line["error"] < 0.02
        assert line["overlap"] > 0.7
    assert evidence.by_quadrature("angle", 60) == pytest.approx(
        evidence.by_quadrature("angle", 120), abs=0.01
    )


def test_the_right_model_is_chosen_where_it_is_plain(benchmark):
    program = benchmark("model_choice")
    # A Gaussian of a beam at S/N 100 has lost a tenth or more of its amplitude at most baselines.
    line = program.one_data_set(("gaussian", 1.0, 100.0, 0), program.FAST | {"n_live": 50, "dlogz": 0.5})
    assert line["chosen"] == "gaussian"
    page = benchmark("trust_page")
    assert page.is_right(line)
    assert page.lead(line) == pytest.approx(line["log_evidence"][2] - max(line["log_evidence"][:2]))


def test_the_synthesised_beam_is_that_of_the_curvature(benchmark):
    program = benchmark("model_choice")
    sky = program.truth("point", 0.0, 1.0, np.random.default_rng(0))
    observation = program.observe(sky, 1.0, 0)
    (part,) = observation.partitions
    uv = part.uvw[:, :2] * part.chan_freq[0] / 299792458.0
    beam = np.deg2rad(program.beam_of(observation) / 3600.0)
    # 1 - PSF(x) = 4 ln 2 (x / FWHM)^2 near the middle; the mean over directions of a beam nearly round.
    step, angle = 0.02 * beam, np.linspace(0.0, np.pi, 180, endpoint=False)
    turns = step * (np.outer(uv[:, 0], np.sin(angle)) + np.outer(uv[:, 1], np.cos(angle)))
    fall = 1.0 - np.cos(2.0 * np.pi * turns).mean(axis=0)
    fwhm = step * np.sqrt(4.0 * np.log(2.0) / fall)
    assert np.sqrt(fwhm.min() * fwhm.max()) == pytest.approx(beam, rel=1e-3)


def test_the_page_of_simulation_based_calibration(benchmark, tmp_path):
    page, results = benchmark("trust_page"), benchmark("common.results")
    band = {"band_68": [0.65, 0.72], "band_95": [0.63, 0.74]}
    quantities = {
        "a.I": {"coverage": {"0.6827": 0.7, "0.9545": 0.95}},
        "log-likelihood": {"coverage": {"0.6827": 0.3, "0.9545": 0.6}},
    }
    line = {
        "case": "weights", "sampler": "emcee", "replicates": 300, "seconds_per_fit": 1.5, "passed": False,
        "chance": 1e-9, "suspects": ["log-likelihood"], "reduced_chi2": {"mean": 1.1, "z": 12.3},
        "expected_coverage": {"0.6827": band, "0.9545": band}, "quantities": quantities,
    }  # fmt: skip
    machine = {"cpu": "one", "python": "3", "versions": {"numba": "0.6"}}
    path = tmp_path / "some.json"
    path.write_text(json.dumps({"machine": machine, "lines": [line]}))
    text = page.sbc_section(*results.read(path))
    row = "| weights | emcee | 300 | 1.1000 (+12.3 sigma) | 30 to 70 % | 60 to 95 % | 1e-09 | caught by"
    assert f"{row} log-likelihood |" in text


def test_the_page_counts_coverage_and_warnings_and_names_silent_fits(benchmark):
    page = benchmark("trust_page")

    def line(kind: str, honest: str, pull: float, warnings: list[str]) -> dict:
        inside = {"g.I": abs(pull) < 2.0, "g.fwhm": True}
        about = {"kind": kind, "honest": honest, "sampler": "none", "seed": 1, "warnings": warnings}
        return about | {"pulls": {"g.I": pull, "g.fwhm": 0.0}, "inside_95": inside}

    lines = [line("sound", "right", 0.1, []), line("sound", "right", 0.2, ["X"])]
    lines += [line("flare", "says it", 9.0, ["X"]), line("all gains", "says it", -4.5, [])]
    machine = {"cpu": "one", "python": "3", "versions": {"numba": "0.6"}}
    text = page.honesty_section({"options": {"none": {}}, "machine": machine}, lines)
    assert "| valid | noise and sky as in the model | 100 % | 1 of 2 | no warning |" in text
    assert "| flare | 1.5 times the flux in the first quarter | 50 % | 1 of 1 | warning |" in text
    assert "1 of 2 fits in rows with the expectation *no warning* have a warning" in text
    assert (
        "1 of 2 fits in rows with the expectation *warning* have a pull above 4 and no warning (all gains 1)"
        in text
    )
    assert "hanning" not in text.lower()  # kinds without a fit have no row


def test_the_page_says_from_which_size_on_nine_of_ten_are_right(benchmark, tmp_path):
    page, results = benchmark("trust_page"), benchmark("common.results")
    names = ["point", "two points", "gaussian"]

    def line(scale: float, right: bool) -> dict:
        chosen, values = ("gaussian", [-1.0, -3.0, 1.5]) if right else ("point", [0.0, -3.0, -2.0])
        about = {"truth": "gaussian", "scale": scale, "ratio": 10.0, "repeat": 0, "seconds": 1.0}
        return about | {"chosen": chosen, "log_evidence": values, "error": [0.1] * 3}

    lines = [line(0.1, False)] * 10 + [line(0.5, True)] * 9 + [line(0.5, False)] + [line(1.0, True)] * 10
    path = tmp_path / "lines.jsonl"
    assert (
        results.write_lines(path, {"scales": [0.1, 0.5, 1.0], "ratios": [10.0]}, lines, lambda line: "") == 30
    )
    about, found = results.read(path)
    assert found == json.loads(json.dumps(lines))
    text = page.model_choice_section(about, found)
    assert (
        "For data from a Gaussian, nine of ten choices are right from this size on: 0.5 beams at S/N 10."
        in text
    )
    assert "| gaussian | 0.5 | **9/10** (1 point), +2.5 |" in text
    assert "| gaussian | 0.1 | **0/10** (10 point), -2.0 |" in text
    assert page.lead(lines[0], names) == -2.0
    picture = tmp_path / "picture.png"
    page.draw(about, found, picture)
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(("n_right", "n"), [(0, 4), (2, 4), (4, 4), (17, 20)])
def test_ends_of_an_interval_are_one_sigma_from_the_share(benchmark, n_right, n):
    """Each p within Wilson's interval has a share within one sigma, sqrt(p (1 - p) / n), of what came out."""
    for end in benchmark("trust_page").interval(n_right, n):
        assert (end - n_right / n) ** 2 == pytest.approx(end * (1.0 - end) / n)
