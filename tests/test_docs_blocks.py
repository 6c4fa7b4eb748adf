"""Each block of README and docs is run, or parsed where it needs what a test does not have."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import typer
from typer.core import TyperGroup

import biro
from biro.cli.app import app
from biro.models.files.toml import from_toml
from biro.simulation import Channels, Track

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXECUTED = "{code-cell}"
"""Cells that the build of the site executes; an error there ends the build."""
DIRECTIVES = ("{toctree}", "{include}")


class Block(NamedTuple):
    """A block of a page: the page, its line, its language and its text."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, and its indented ones as language "indented"."""
    found, opened, lines = [], None, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = re.match(r"\s*```(\S*)", line)
        if fence and opened:
            found.append(Block(page, *opened, "\n".join(lines)))
            opened = None
        elif fence:
            opened, lines = (number, fence[1]), []
        elif opened:
            lines.append(line)
        elif line.startswith("    "):
            if found and found[-1].language == "indented" and found[-1].text.endswith("\\"):
                found[-1] = found[-1]._replace(text=found[-1].text + "\n" + line.strip())
            else:
                found.append(Block(page, number, "indented", line.strip()))
    assert opened is None, f"{page}: a block has no end"
    return found


ALL = [block for page in PAGES for block in blocks(page)]
USAGE_ERROR = typer.BadParameter.__mro__[1]
"""Base of all errors about a command line; Typer has it without a public name."""


LAUNCHERS = ("biro", "mpiexec", "srun")


def commands(block: Block) -> list[list[str]]:
    """Return the arguments of each call of biro in a shell block."""
    text = block.text.replace("\\\n", " ")
    calls = []
    for line in text.splitlines():
        if not re.search(r"(^|\s|/)biro [a-z-]", line):
            continue
        for part in re.split(r"&&|\|", line):
            words = shlex.split(part, comments=True)
            start = next((k for k, word in enumerate(words) if word.split("/")[-1] == "biro"), None)
            if (
                start is not None
                and (words[0].split("/")[-1] in LAUNCHERS or "=" in words[0])
                and "..." not in words
            ):
                calls.append([word for word in words[start + 1 :] if word not in ("&", ">", "2>")])
    return calls


def parse(arguments: list[str]) -> None:
    """Parse a call of biro without running it and without looking for files."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    context = typer.Context(group)
    _, rest, _ = group.make_parser(context).parse_args(args=list(arguments))
    if not rest:
        return
    command = group.get_command(context, rest[0])
    assert command is not None, f"no command {rest[0]}"
    inner = typer.Context(command, parent=context)
    values, left, _ = command.make_parser(inner).parse_args(args=rest[1:])
    assert not left, left
    for parameter in command.params:
        value = values.get(parameter.name)
        assert not parameter.required or value not in (None, ()), f"{parameter.name} is missing"


SHELL = [block for block in ALL if block.language in ("sh", "bash", "indented") and commands(block)]


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_of_a_page_have_the_options_of_biro(block: Block) -> None:
    """Subcommands, options and the number of arguments are those of the program."""
    for arguments in commands(block):
        parse(arguments)


def test_a_wrong_option_is_found() -> None:
    """The parser refuses an option that biro does not have."""
    with pytest.raises(USAGE_ERROR):
        parse(["info", "obs.ms", "--nothing"])


PLAIN = """
[[source]]
name = "core"
type = "point"
east = "0 arcsec"
north = "0 arcsec"
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }
"""
TOML = [block for block in ALL if block.language == "toml"]


@pytest.mark.parametrize("block", TOML, ids=str)
def test_toml_of_a_page_is_toml(block: Block) -> None:
    """Each block is TOML, and a block that holds sources alone, all of them, is a sky model."""
    tables = tomllib.loads(block.text)
    if (
        set(tables) <= {"source", "sky", "noise"}
        and "east" in block.text
        and not re.search(r'= "\w+\.\w+|custom|orbit', block.text)
    ):
        from_toml(block.text)


PYTHON = [block for block in ALL if block.language == "python"]
REASONS = {
    "flag_selected(": "needs a Measurement Set",
    "biro.read(": "needs a Measurement Set",
    "biro.read_image(": "needs a FITS image",
    "halo.fits": "needs a FITS image",
    "posterior.nc": "needs a run directory",
    "MPI": "needs MPI",
    "devices=": "needs GPUs",
    "n_baseline": "a sketch: arrays come from a correlator",
    "core_only.toml": "the fits take minutes",
    "fit_each": "needs two Measurement Sets",
    "AA": "needs antennas of the EHT",
    "biro.sample(": "the sampler takes longer than a test may",
    "rest_freq": "needs a spectral line of many channels",
    "add_source": "the sampler takes longer than a test may",
}
OTHER_SAMPLERS = ("ultranest", "nautilus", "zeus", "pocomc", "bilby")
REASONS |= {name: "needs another sampler; tests/biro/test_own_samplers.py runs it" for name in OTHER_SAMPLERS}
"""What a block contains, and why a block with it is compiled only."""


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_of_a_page_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block runs beside a small simulated observation, with the names that pages give to its likelihood."""
    code = compile(block.text, str(block), "exec")
    reason = next((reason for text, reason in REASONS.items() if text in block.text), None)
    if reason is not None:
        pytest.skip(f"compiled only: {reason}")
    if "import interactive" in block.text:
        pytest.importorskip("plotly", reason="plotly is an extra of its own")
    monkeypatch.chdir(tmp_path)
    sky = from_toml(PLAIN)
    observation = biro.simulate(
        "VLA-C",
        from_toml(re.sub(r"I = .*", 'I = "1 Jy"', PLAIN)),
        phase_centre="12h00m00s +40d00m00s",
        times=Track("2026-03-01", 1200.0, 600.0),
        channels=Channels(1.4e9, 2e6),
        noise=0.1,
        seed=1,
    )
    likelihood = biro.Likelihood(observation, sky, backend="cpu")
    theta = likelihood.model.prior_transform(np.full(likelihood.n_param, 0.5))
    posterior = biro.sample(likelihood, "none", seed=1, progress=False)
    names = {"likelihood": likelihood, "observation": observation, "sky": sky, "theta": theta, "biro": biro}
    names |= {"v": theta, "y": np.zeros(likelihood.n_param), "posterior": posterior}
    exec(code, names)


CELLS = [block for block in ALL if block.language == EXECUTED]


@pytest.mark.parametrize("block", CELLS, ids=str)
def test_cells_of_a_page_compile(block: Block) -> None:
    """The build of the site executes cells; their syntax is checked here, without options and magics."""
    lines = [line for line in block.text.splitlines() if not line.startswith((":tags:", "%"))]
    compile("\n".join(lines), str(block), "exec")


def test_no_block_has_a_language_that_nothing_checks() -> None:
    """Every fenced block is of a kind that a test above looks at, or is a directive of the site."""
    known = {"sh", "bash", "indented", "toml", "python", EXECUTED, *DIRECTIVES}
    assert not [str(block) for block in ALL if block.language not in known]
