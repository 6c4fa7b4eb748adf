"""The blocks of README and of each page of docs run in their order, in one folder with the files of a user.

A block that cannot run has a comment on the line before it that gives the reason. So has a line of a block:

    <!-- not run: needs a GPU -->
    <!-- not run "biro tune": needs a GPU -->

`<!-- file: sky.toml -->` before a block writes it into a file, which later blocks of the page use.
`<!-- printed by: biro info obs.ms -->` before a block of text runs the command, whose output must have these
lines in this order; a line `...` stands for any number of lines.
"""

from __future__ import annotations

import glob
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.models.files.toml import from_toml
from tests import files_of_pages

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXECUTED = "{code-cell}"
"""Cells that the build of the site executes; an error there ends the build."""
DIRECTIVES = ("{toctree}", "{include}")
NOT_RUN = re.compile(r'<!-- not run(?: "(?P<text>[^"]+)")?: (?P<reason>.+) -->')
FILE = re.compile(r"<!-- file: (\S+) -->")
PRINTED = re.compile(r"<!-- printed by: biro (.+) -->")
COMMAND = re.compile(r"    (\S+=\S+ )?(biro|python3?|pip|mpiexec|conda|srun) ")
USAGE_ERROR = typer.BadParameter.__mro__[1]
"""Base of all errors about a command line; Typer has it without a public name."""


class Block(NamedTuple):
    """A fenced block of a page, and the comments on the lines before it."""

    page: Path
    line: int
    language: str
    text: str
    comments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why nothing of the block runs."""
        return next((found["reason"] for found in self._not_run() if not found["text"]), None)

    @property
    def file(self) -> str | None:
        """The file that the block is written into."""
        return next((found[1] for text in self.comments if (found := FILE.fullmatch(text))), None)

    @property
    def command(self) -> str | None:
        """The command that prints the block."""
        return next((found[1] for text in self.comments if (found := PRINTED.fullmatch(text))), None)

    def lines(self) -> Iterator[tuple[str, str | None]]:
        """Give the commands of a shell block, and why one does not run."""
        for line in self.text.replace("\\\n", " ").splitlines():
            if shlex.split(line, comments=True):
                of_line = (found["reason"] for found in self._not_run() if (found["text"] or "\n") in line)
                yield line, self.reason or next(of_line, None)

    def _not_run(self) -> Iterator[re.Match[str]]:
        return (found for text in self.comments if (found := NOT_RUN.fullmatch(text)))


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found, comments, opened, lines = [], [], None, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = re.match(r"\s*```(\S*)", line)
        if fence and opened:
            found.append(Block(page, *opened, "\n".join(lines), tuple(comments)))
            opened, comments = None, []
        elif fence:
            opened, lines = (number, fence[1]), []
        elif opened:
            lines.append(line)
        elif line.startswith("<!--"):
            comments.append(line)
        else:
            comments = []
    assert opened is None, f"{page}: a block has no end"
    return found


ALL = [block for page in PAGES for block in blocks(page)]
SHELL = [block for block in ALL if block.language in ("sh", "bash")]
LAUNCHERS = ("biro", "mpiexec", "srun")


def arguments_of(line: str) -> Iterator[list[str]]:
    """Give the arguments of each call of biro in a line of a shell."""
    for part in re.split(r"&&|\|", line):
        words = shlex.split(part, comments=True)
        start = next((k for k, word in enumerate(words) if word.split("/")[-1] == "biro"), None)
        if start is not None and (words[0].split("/")[-1] in LAUNCHERS or "=" in words[0]):
            yield [word for word in words[start + 1 :] if word not in ("&", ">", "2>")]


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


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_that_do_not_run_have_the_options_of_biro(block: Block) -> None:
    """Subcommands, options and the number of arguments are those of the program."""
    for line, reason in block.lines():
        for arguments in arguments_of(line) if reason else ():
            parse(arguments)


def test_a_line_that_is_not_printed_is_found() -> None:
    """Spaces and the last digits of numbers do not count; the order does."""
    output = "title\na   1\nb   2\nc   3\n"
    assert differing_line("a 1\nb 2", output) is None
    assert differing_line("title\n...\nc 3", output) is None
    assert differing_line("a 1\nc 3", output) == "c 3"
    assert differing_line("b 2\n...\na 1", output) == "a 1"
    assert differing_line("a 7", output) == "a 7"
    assert differing_line("x 10.0 1.50", "x 10.1 1.53") is None
    assert differing_line("x 10.0 1.50", "x 10.5 1.53") == "x 10.0 1.50"


def test_a_wrong_option_is_found() -> None:
    """The parser refuses an option that biro does not have."""
    with pytest.raises(USAGE_ERROR):
        parse(["info", "obs.ms", "--nothing"])


QUICK = {
    "simulate": ["--duration", "2 min"],
    "image": ["--size", "128"],
}
"""Options behind those of a page, with which a command takes seconds. The last of repeated options counts."""


def quick(arguments: list[str]) -> list[str]:
    """Add options with which a command takes seconds."""
    command = next(word for word in arguments if not word.startswith("-"))
    options: list[str] = []
    if command == "fit":
        options = ["--no-pictures"]
        usual = "dynesty" if "--compare" in arguments else "emcee"
        sampler = arguments[arguments.index("--sampler") + 1] if "--sampler" in arguments else usual
        models = [word for word in arguments if word.endswith(".toml") and Path(word).exists()]
        has_sampler = not any(biro.read_model(model).image_priors for model in models)
        for name, value in files_of_pages.SAMPLERS[sampler].items() if has_sampler else ():
            options += ["--set", f"{name}={value}"]
    return [*arguments, *QUICK.get(command, []), *options]


def call(arguments: list[str]) -> str:
    """Run a command of biro, which must end well, and return what it prints."""
    words = [found for word in arguments for found in (sorted(glob.glob(word)) or [word])]
    result = CliRunner().invoke(app, quick(words))
    assert result.exit_code == 0, f"biro {shlex.join(words)}: {result.exception!r}\n{result.output[-2000:]}"
    return result.output


def is_printed(page: str, output: str) -> bool:
    """Tell whether words are equal, and numbers to three units of their last digit or 1 %.

    Other processors round otherwise, which moves draws of a posterior by that much.
    """
    ours, theirs = page.split(), output.split()
    return len(ours) == len(theirs) and all(map(_is_alike, ours, theirs))


def _is_alike(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    try:
        one, other = float(ours), float(theirs)
    except ValueError:
        return False
    digits = len(ours.partition(".")[2])
    return abs(one - other) <= max(3.01 * 10.0**-digits, 0.01 * abs(one))


def differing_line(text: str, output: str) -> str | None:
    """Return the first line of a page that the output does not have behind those before it."""
    printed, anywhere = output.splitlines(), True
    for line in text.splitlines():
        if line == "...":
            anywhere = True
            continue
        choice = range(len(printed) if anywhere else 1)
        place = next((k for k in choice if is_printed(line, printed[k])), None) if printed else None
        if place is None:
            return line
        printed, anywhere = printed[place + 1 :], False
    return None


RUN = ["fit", "obs.ms", "sky.toml", "-o", "run"]


@pytest.fixture(scope="session")
def world(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the files that pages name, and a finished run."""
    folder = tmp_path_factory.mktemp("pages")
    files_of_pages.make(folder, data_dir)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        call(RUN)
    return folder


class Page:
    """What the blocks of a page have in common: the files in the working folder, and names of Python."""

    def __init__(self, given: Path) -> None:
        self.given = {path.name for path in given.iterdir()} - {"obs.ms", "sky.toml"}
        sky = biro.read_model("sky.toml")
        observation = biro.read("obs.ms")
        likelihood = biro.Likelihood(observation, sky, backend="cpu")
        theta = likelihood.model.prior_transform(np.full(likelihood.n_param, 0.5))
        posterior = biro.Posterior.load("run/posterior.nc")
        self.names: dict[str, Any] = {"biro": biro, "sky": sky, "observation": observation}
        self.names |= {"likelihood": likelihood, "posterior": posterior, "theta": theta, "v": theta}
        self.names |= {"y": np.zeros(likelihood.n_param), "sources": sky.sources, "__name__": "__main__"}

    def shell(self, block: Block) -> None:
        for line, reason in block.lines():
            if reason is None:
                words = shlex.split(line, comments=True)
                assert words[0] == "biro", f"{block}: say why this is not run: {line}"
                if words[1:] != RUN:
                    self.make_room(words)
                call(words[1:])

    def make_room(self, words: list[str]) -> None:
        """Remove a file or run that the user is about to make, unless the page has made it."""
        for flag in ("-o", "--out"):
            name = words[words.index(flag) + 1] if flag in words else ""
            if name in self.given:
                self.given.remove(name)
                path = Path(name)
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def compare(self, block: Block) -> None:
        assert block.command
        words = shlex.split(block.command)
        self.make_room(words)
        output = call(words)
        line = differing_line(block.text, output)
        assert line is None, f"{block}: biro {block.command} does not print {line!r} there, but\n{output}"

    def write(self, name: str, text: str) -> None:
        Path(name).unlink(missing_ok=True)
        Path(name).write_text(text + "\n")
        if name == "sky.toml" and "run" in self.given:
            self.make_room(["-o", "run"])


def _sample(original: Any, likelihood: Any, sampler: str = "emcee", **options: Any) -> Any:
    return original(likelihood, sampler, **(options | files_of_pages.SAMPLERS[sampler] | {"progress": False}))


def runnable(page: Path) -> list[Block]:
    kinds = ("sh", "bash", "python")
    return [block for block in blocks(page) if block.language in kinds or block.file or block.command]


WITH_BLOCKS = [page for page in PAGES if any(not block.reason for block in runnable(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(
    page: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands end well, and no block of Python raises."""
    shutil.copytree(world, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(biro, "sample", partial(_sample, biro.sample))
    here = Page(world)
    for block in runnable(page):
        if block.file:
            here.write(block.file, block.text)
        elif block.command:
            here.compare(block)
        elif block.language != "python":
            here.shell(block)
        elif not block.reason:
            with plt.rc_context():
                exec(compile(block.text, str(block), "exec"), here.names)
    plt.close("all")


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


@pytest.mark.parametrize("block", [block for block in ALL if block.language in (EXECUTED, "python")], ids=str)
def test_python_of_a_page_compiles(block: Block) -> None:
    """The syntax of cells, which the build of the site executes, and of blocks that do not run."""
    lines = [line for line in block.text.splitlines() if not line.startswith((":tags:", "%"))]
    compile("\n".join(lines), str(block), "exec")


def test_no_block_has_a_language_that_nothing_checks() -> None:
    """Every fenced block is of a kind that a test above looks at, or is a directive of the site."""
    known = {"sh", "bash", "toml", "python", "text", EXECUTED, *DIRECTIVES}
    assert not [str(block) for block in ALL if block.language not in known]


def test_commands_are_fenced() -> None:
    """A command in an indented block would not be run."""
    fenced = {line for block in ALL for line in block.text.splitlines()}
    lines = (line for page in PAGES for line in page.read_text().splitlines() if line not in fenced)
    assert not [line for line in lines if COMMAND.match(line)]
