"""Numbers that cannot be meant, in Measurement Sets and in what is asked for: one line, before any work."""

from __future__ import annotations

import math
import resource
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table
from commands import KAT_7, SOURCE
from test_cli_faults import fails, opened
from typer.testing import CliRunner

from biro.cli.app import app
from biro.display.formatting import first_few
from biro.errors import InputError
from biro.files import memory
from biro.inference.maximum.laplace import _in_words
from biro.inference.samplers.options import MOST_EVALUATIONS, parse_options
from biro.io.measurement_set import read_ms

N_ROW = 63


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e20, -1e20])
def test_times_that_cannot_be_meant(ms: Path, sky_with_prior: Path, tmp_path: Path, value: float) -> None:
    """A set of such times is refused, whatever is to be done with it, and can be read without them."""
    with opened(ms) as main:
        time = main.getcol("TIME")
        time[[0, 40, 41]] = value
        main.putcol("TIME", time)
    run, picture = tmp_path / "run", tmp_path / "image"
    for words in (["info", ms], ["image", ms, "-o", picture], ["fit", ms, sky_with_prior, "-o", run]):
        said = fails(*words)
        assert f"TIME is invalid in 3 of 63 rows (row 0 has {value:g} s)" in said
        assert "--time-range" in said
    assert not run.exists()
    rest = read_ms(ms, time_range=("1900-01-01", "2100-01-01"))
    assert rest.partitions[0].n_row == N_ROW - 3


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e20, 3.0])
def test_phase_centres_that_cannot_be_meant(ms: Path, tmp_path: Path, value: float) -> None:
    """3 rad can be a right ascension, but is no declination."""
    with table(f"{ms}/FIELD", readonly=False, ack=False) as field:
        field.putcol("PHASE_DIR", np.full((1, 1, 2), value))
    for words in (["info", ms], ["image", ms, "-o", tmp_path / "image"]):
        assert f"its PHASE_DIR, ({value:g}, {value:g}) rad, is not a direction" in fails(*words)


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("CHAN_FREQ", math.nan, "CHAN_FREQ is invalid in 1 of 1 channels (channel 0 has nan Hz)"),
        ("CHAN_FREQ", -1e9, "channel 0 has -1e+09 Hz"),
        ("CHAN_FREQ", 1e300, "channel 0 has 1e+300 Hz"),
        ("CHAN_WIDTH", math.inf, "CHAN_WIDTH is invalid in 1 of 1 channels (channel 0 has inf Hz)"),
    ],
)
def test_channels_that_cannot_be_meant(
    ms: Path, tmp_path: Path, column: str, value: float, text: str
) -> None:
    with table(f"{ms}/SPECTRAL_WINDOW", readonly=False, ack=False) as window:
        window.putcol(column, np.full((1, 1), value))
    assert text in fails("image", ms, "-o", tmp_path / "image")


def test_baselines_beyond_the_solar_system_are_no_data(ms: Path) -> None:
    with opened(ms) as main:
        uvw = main.getcol("UVW")
        uvw[5] = 1e300
        main.putcol("UVW", uvw)
    counts = read_ms(ms).counts
    assert counts["no data"] == 4, "one row of one channel and four correlations"
    assert counts["usable"] == 4 * (N_ROW - 1)


def test_an_antenna_without_a_position(ms: Path) -> None:
    """Its position is asked for only where a phase centre has to be converted."""
    with table(f"{ms}/ANTENNA", readonly=False, ack=False) as antenna:
        antenna.putcol("POSITION", np.full((7, 3), math.nan))
    assert read_ms(ms).counts["usable"] == 4 * N_ROW


@pytest.fixture
def sky_with_prior(tmp_path: Path) -> Path:
    path = tmp_path / "prior.toml"
    path.write_text(SOURCE + 'I = { prior = "uniform", low = 0, high = 3, unit = "Jy" }\n')
    return path


@pytest.mark.parametrize(
    "prior",
    [
        'prior = "uniform", low = 0, high = 1e300',
        'prior = "uniform", low = 1e-300, high = 1e-290',
        'prior = "normal", mean = 0, sd = 1e200',
        'prior = "half-normal", sd = 1e-200',
        'prior = "log-uniform", low = 1e-300, high = 1e300',
    ],
)
def test_priors_whose_variance_is_no_number(clean: Path, tmp_path: Path, prior: str) -> None:
    model = tmp_path / "model.toml"
    shape = f'type = "gaussian"\nfwhm = {{ {prior}, unit = "arcsec" }}\n'
    model.write_text(f'{SOURCE}I = "1 Jy"\n{shape}')
    said = fails("fit", clean, model, "-o", tmp_path / "run")
    assert "fwhm" in said
    assert "needs a middle half that is wider than 1e-50, and no number above 1e+50" in said


@pytest.mark.parametrize(
    ("sampler", "option", "text"),
    [
        ("emcee", {"n_walker": 10**12}, "emcee with n_walker=1000000000000 needs 2.4e+06 GB of memory"),
        ("emcee", {"n_tau": math.inf}, "n_tau must be a finite number"),
        ("emcee", {"n_walker": 10**400}, "n_walker must be a finite number below 4.6e+18, got 1000000"),
        ("dynesty", {"n_live": 10**12}, "GB of memory"),
        ("dynesty", {"batch": 10**12}, "batch must be at most 1024 (one thread each), got 1000000000000"),
        ("dynesty", {"walks": 10**12}, "needs 1e+16 likelihoods or more, 3.2e+03 years even at 10 us each"),
        ("dynesty", {"walks": -1}, "walks must be 0 or more, got -1"),
        ("dynesty", {"dlogz": 1e-300}, "dlogz must be at least 1e-09"),
        ("dynesty-dynamic", {"n_effective": 10**12}, "GB of memory"),
        ("none", {"starts": 10**12}, "GB of memory"),
        ("none", {"n_sample": 10**12}, "GB of memory"),
        ("nuts", {"n_chain": 10**6}, "n_chain must be at most 1024 (one thread each), got 1000000"),
        ("nuts", {"target_accept": 0.99999999999999}, "target_accept must be at most 0.999"),
        ("nuts", {"max_depth": 10**12}, "max_depth must be at most 20, got 1000000000000"),
        ("nuts", {"n_draw": 10**12}, "GB of memory"),
        ("nuts", {"n_tune": 10**12}, "GB of memory"),
        ("tempering", {"n_walker": 10**9}, "GB of memory"),
        ("tempering", {"n_walker": -1}, "n_walker must be at least 4 (R-hat compares walkers), got -1"),
        ("tempering", {"max_steps": 0}, "max_steps must be above 0, got 0"),
    ],
)
def test_options_without_bounds(sampler: str, option: dict[str, float], text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_options(sampler, option, 4)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("sampler", ["emcee", "dynesty", "dynesty-dynamic", "tempering", "nuts", "none"])
def test_what_people_ask_for_is_far_from_the_bounds(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults for 100 parameters need less than 8 GB, which machines have, and 1/1000 of a year."""
    monkeypatch.setattr(memory, "free_memory", lambda: 8 << 30)
    options = parse_options(sampler, {}, 100)
    assert options.evaluations(100) < 1e-3 * MOST_EVALUATIONS


def test_nothing_is_written_for_options_that_are_refused(
    clean: Path, sky_with_prior: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for name, text in (("n_live", "needs"), ("batch", "at most")):
        words = ["fit", clean, sky_with_prior, "-o", run, "--sampler", "dynesty", "--backend", "cpu"]
        assert text in last_line(*words, "--set", f"{name}=1000000000000")
    for words, text in ((["--workers", 10**6], "a process for each"), (["--replicates", 10**12], "1000000")):
        assert text in fails("sbc", clean, sky_with_prior, "-o", run, "--backend", "cpu", *words)
    assert not run.exists()


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--duration", "1e9 h", "a track may be 3.2e+09 s long"),
        ("--integration", "1e-9 s", "1.8e+11 times, 21 baselines and 1 channels needs 1.6"),
        ("--n-chan", 10**9, "3 times, 21 baselines and 1e+09 channels needs 2.52e+04 GB of memory"),
        ("--noise", "1e308", "noise must be 0, or 1e-15 to 1e+15 Jy"),
        ("--freq", "1e300 Hz", "which is not a radio frequency"),
        ("--seed", -1, "seed must be from 0 to 2^63 - 1, got -1"),
    ],
)
def test_simulations_without_bounds(
    clean: Path, tmp_path: Path, option: str, value: object, text: str
) -> None:
    # n_vis = 1.8e11 times x 21 baselines x 4 correlations, at 100 bytes each and more: 1.5e15 bytes and more.
    words = {
        **{"--telescope": "KAT-7", "--phase-centre": "05h00m00s -45d00m00s", "--start": "2026-03-01"},
        **{"--duration": "3 min", "--integration": "60 s", "--freq": "1.8 GHz", "--chan-width": "1 MHz"},
        option: value,
    }
    out = tmp_path / "new.ms"
    flat = [word for pair in words.items() for word in pair]
    assert text in fails("simulate", out, clean.parent / "sky.toml", *flat)
    assert not out.exists()


def test_a_sky_too_bright_to_be_stored(clean: Path, tmp_path: Path) -> None:
    """The column DATA has single precision, in which 1e300 is infinite."""
    sky, out = tmp_path / "sky.toml", tmp_path / "new.ms"
    sky.write_text(SOURCE + 'I = "1e300 Jy"\n')
    assert "visibilities of up to 1e+300 Jy cannot be stored" in last_line("simulate", out, sky, *KAT_7)
    assert not out.exists()


def test_choices_of_channels_and_cells_without_bounds(clean: Path, tmp_path: Path) -> None:
    for channels in ("::0", "9" * 40):
        assert "is not understood" in fails("info", clean, "--channels", channels)
    said = fails("image", clean, "-o", tmp_path / "image", "--cell", "1e-300 rad")
    assert "cell must be an angle of 1e-15 rad to 1 rad" in said
    assert read_ms(clean, average_channels=10**30).partitions[0].n_chan == 1


def test_free_memory_knows_the_limit_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an address space of 100 MB less is free than the 100 MB, of which Python has some."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100 << 20, 100 << 20))
    assert memory.free_memory() < 100 << 20
    with pytest.raises(InputError, match=r"a map needs 1 GB of memory, .* MB are free; draw a smaller one"):
        memory.check_memory(1e9, "a map", "draw a smaller one")


@pytest.mark.parametrize(
    ("line", "folder", "names", "prefix"),
    [
        ("4:memory:/job/step", "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"),
        ("0::/job/step", "", ("memory.max", "memory.current"), ""),
    ],
    ids=["version 1", "version 2"],
)
def test_free_memory_knows_the_limits_of_control_groups(
    line: str,
    folder: str,
    names: tuple[str, str],
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 700 bytes 450 are used, 80 + 120 of these by files: 450 are left; the group above leaves 300."""
    own, step = tmp_path / "own", tmp_path / folder / "job/step"
    own.write_text(f"7:blkio:/\n{line}\n")
    step.mkdir(parents=True)
    monkeypatch.setattr(memory, "GROUPS", tmp_path)
    monkeypatch.setattr(memory, "OWN_GROUPS", own)

    def limit(group: Path, allowed: object) -> None:
        for name, value in zip(names, (allowed, 450), strict=True):
            (group / name).write_text(f"{value}\n")
        stat = f"{prefix}active_file 80\n{prefix}inactive_file 120\nanon 250\n"
        (group / "memory.stat").write_text(stat)

    limit(step, 700)
    assert memory.free_memory() == 450
    limit(step.parent, 550)
    assert memory.free_memory() == 300
    for group in (step, step.parent):
        limit(group, "max")
    assert memory.free_memory() > 1 << 20


def last_line(*words: object) -> str:
    """The last line that a command says before it ends with exit code 2, after it has said what it chose."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 2, result.stderr
    return result.stderr.splitlines()[-1]


def test_emcee_with_hundreds_of_parameters() -> None:
    """It took 400 s before the first step; who wants it all the same states the number of walkers."""
    with pytest.raises(InputError, match=r"with 499 parameters .*; use --sampler nuts, or none") as caught:
        parse_options("emcee", {}, 499)
    assert len(str(caught.value)) < 250
    assert parse_options("emcee", {"n_walker": 1000}, 499).n_together == 500
    assert parse_options("emcee", {}, 200).n_together == 400


def test_long_lists_in_messages_are_cut() -> None:
    """499 parameters, of which the data say nothing, are one line: it names the first and counts the rest."""
    names = [f"s{i}.I" for i in range(499)]
    assert first_few(names) == "s0.I, s1.I, s2.I, s3.I, s4.I, s5.I, s6.I, s7.I and 491 more"
    assert first_few(names[:8]) == ", ".join(names[:8])
    direction = np.linspace(2.0, 1.0, 499)
    text = _in_words(direction, np.ones(499), names)
    assert text.startswith("s0.I + ")
    assert text.endswith(" s7.I and 491 more")
