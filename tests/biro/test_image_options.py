"""Options of `biro fit` with an image that has a prior: each arrives, or is refused by one line."""

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import biro.image_posterior.fit
import biro.io.reading
import biro.run.facts
from biro.cli.fit import fit
from biro.cli.options import READING
from tests.biro.commands import biro as run_biro

MODEL = '[[image]]\nname = "sky"\nprior = "smooth"\nsize = 32\n'
WORK: dict[str, tuple[list[str], dict[str, object]]] = {
    "run": ([], {}),  # each command here has it
    "seed": (["--seed", "7"], {"seed": 7}),
    "backend": (["--backend", "cpu"], {"backend": "cpu"}),
    "gains": (["--gains", "closures"], {"gains": "closures"}),
    "memory_limit": (["--memory-limit", "1 GB"], {"memory_limit": "1 GB"}),
    "set_option": (["--set", "strength=2", "--set", "n_cycle=3"], {"strength": 2, "n_cycle": 3}),
    "pictures": (["--no-pictures"], {"pictures": False}),
    "as_json": (["--json"], {}),
}
"""Words of an option, and what `fit_image` is called with."""
REFUSED: dict[str, list[str]] = {
    "sampler": ["--sampler", "emcee"],
    "precision": ["--precision", "single"],
    "gaussian_frame": ["--gaussian-frame", "uv"],
    "smearing": ["--smearing", "on"],
    "average": ["--average", "cells"],
    "devices": ["--devices", "all"],
    "cache": ["--cache", "cache"],
    "each": ["--each"],
    "workers": ["--each", "--workers", "2"],
    "compare": ["--compare"],
    "number": ["--number", "0:3"],
}
READ: dict[str, tuple[list[str], object]] = {
    "column": (["--column", "DATA"], "DATA"),
    "weight_column": (["--weight-column", "WEIGHT"], "WEIGHT"),
    "fields": (["--fields", "a,b"], ["a", "b"]),
    "spws": (["--spws", "0"], ["0"]),
    "scans": (["--scans", "1,2"], [1, 2]),
    "antennas": (["--antennas", "!m000"], ["!m000"]),
    "time_range": (["--time-range", "2026-03-01.."], ("2026-03-01", None)),
    "uv_range": (["--uv-range", "1 km.."], "1 km.."),
    "channels": (["--channels", "0:4"], "0:4"),
    "correlations": (["--correlations", "XX,YY"], "XX,YY"),
    "stokes": (["--stokes", "I"], "I"),
    "autocorrelations": (["--autocorrelations"], True),
    "weights": (["--weights", "equal"], "equal"),
    "taper": (["--taper", "1 km"], "1 km"),
    "average_time": (["--average-time", "30 s"], "30 s"),
    "average_channels": (["--average-channels", "2"], 2),
    "smearing_radius": (["--smearing-radius", "1 arcmin"], "1 arcmin"),
    "convention": (["--convention", "fourier"], "fourier"),
    "flagger": (["--flagger", "wsrt"], "wsrt"),
    "time_limit": (["--time-limit", "3"], 3.0),
}
"""Words of a reading option, and what `biro.read` is called with."""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments that `read` and `fit_image` were called with, in place of data and a fit."""
    found: dict[str, Any] = {"read": None, "fit": None}
    monkeypatch.chdir(tmp_path)
    Path("sky.toml").write_text(MODEL)
    Path("run").mkdir()

    def read(obs: object, **reading: object) -> object:
        found["read"] = reading
        return SimpleNamespace()

    real = inspect.signature(biro.image_posterior.fit.fit_image)

    def fit_image(*args: object, **given: object) -> object:
        real.bind(*args, **given)
        found["fit"] = given
        return SimpleNamespace(to_dict=lambda: {"flux": 1.0})

    fit_image.__signature__ = real  # type: ignore[attr-defined]
    monkeypatch.setattr(biro.io.reading, "read", read)
    monkeypatch.setattr(biro.image_posterior.fit, "fit_image", fit_image)
    monkeypatch.setattr(biro.run.facts, "observed_facts", lambda obs, reading: {})
    return found


def command(*words: str) -> tuple[int, str, str]:
    return run_biro("fit", "obs.ms", "sky.toml", "-o", "run", *words)


def test_each_option_of_the_command_is_in_a_table_of_this_test() -> None:
    names = set(inspect.signature(fit).parameters) - {"obs", "model"}
    assert names == WORK.keys() | REFUSED.keys() | READ.keys()
    assert READ.keys() == READING.keys()


@pytest.mark.parametrize("name", WORK)
def test_an_option_that_images_have_arrives(name: str, calls: dict[str, Any]) -> None:
    words, expected = WORK[name]
    code, out, err = command(*words)
    assert code == 0, err
    assert calls["fit"].items() >= expected.items()
    assert str(calls["fit"]["run_dir"]) == "run"
    assert out.startswith("{") == (name == "as_json")


@pytest.mark.parametrize("name", READ)
def test_a_reading_option_arrives(name: str, calls: dict[str, Any]) -> None:
    words, expected = READ[name]
    code, _, err = command(*words)
    assert code == 0, err
    assert calls["read"] == {name: expected}


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_that_images_lack_is_refused_by_one_line(name: str, calls: dict[str, Any]) -> None:
    words = REFUSED[name]
    code, _, err = command(*words)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert words[0] in err
    assert calls["fit"] is None


def test_several_models_and_arguments_as_options_of_the_engine_are_refused(calls: dict[str, Any]) -> None:
    Path("other.toml").write_text(MODEL)
    code, _, err = run_biro("fit", "obs.ms", "sky.toml", "other.toml", "-o", "run")
    assert code == 2
    assert "2 models, one of which has an image with a prior" in err
    code, _, err = command("--set", "seed=3")
    assert code == 2
    assert "--set seed is no option of an engine of images" in err
