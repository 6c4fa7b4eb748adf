"""The command `biro`: its subcommands, and the options that all of them have.

What takes long to import is imported when a command runs, so that `biro --help` is quick.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

from biro._version import __version__
from biro.cli.data import flag, info
from biro.cli.demo import demo
from biro.cli.find import find
from biro.cli.fit import fit
from biro.cli.guard import EXIT_CODES, guard, say
from biro.cli.image import image
from biro.cli.plot import compare, plot, watch
from biro.cli.predict import predict
from biro.cli.region import region
from biro.cli.sbc import sbc
from biro.cli.simulate import simulate
from biro.cli.sky import convert, is_sky_model
from biro.cli.solve import solve
from biro.cli.tune import tune
from biro.distributed.world import Launch
from biro.run.environment import Streams, problem_of_variables

COMMANDS = (
    *(
        info,
        flag,
        fit,
        region,
        sbc,
        predict,
        solve,
        image,
        find,
        simulate,
        convert,
        compare,
        plot,
        watch,
        demo,
    ),
    tune,
)
"""In the order in which the help lists them."""

SHARED = ("fit", "sbc", "predict", "image", "simulate")
"""Commands whose work processes of MPI share."""

app = typer.Typer(
    name="biro",
    help="Bayesian sky-model inference for radio interferometry.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class DataAndModel(TyperCommand):
    """A command of data and a model: a line says which of them is missing."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse the words of the command line, whose last is taken as the model where there is one alone."""
        try:
            return super().parse_args(ctx, list(args))
        except Exception as error:  # of click, which typer brings along in some versions
            if type(error).__name__ != "MissingParameter" or getattr(error, "param", None) is None:
                raise
            if error.param.name not in ("obs", "model"):  # type: ignore[attr-defined]
                raise
            word = self.make_parser(ctx).parse_args(list(args))[0].get("model")
            ctx.fail(_which_is_missing(word))


def _which_is_missing(word: str | None) -> str:
    """What a command of data and a model lacks, of which one word is given, or none."""
    if word is None:
        return "OBS and MODEL are missing: give the data, then the sky model."
    is_model = is_sky_model(Path(word))
    if is_model is None:
        return f"OBS or MODEL is missing: only {word} is given, expected the data, then the sky model."
    if is_model:
        return f"OBS is missing: only the sky model {word} is given, expected the data before it."
    return f"MODEL is missing: only the data {word} are given, expected a sky model behind them."


for command in COMMANDS:
    kind = DataAndModel if command in (fit, sbc) else None
    app.command(cls=kind)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"biro {__version__}")
        raise typer.Exit(0)


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what biro chooses, and why.")] = False,
) -> None:
    """Bayesian sky-model inference for radio interferometry."""
    n_process = Launch.of(os.environ).n_process
    if n_process > 1 and context.invoked_subcommand not in SHARED:
        say(
            f"biro: {n_process} MPI processes were started, but `biro {context.invoked_subcommand}` runs in "
            f"one process. Start it without mpiexec (MPI works with {', '.join(SHARED)})"
        )
        raise typer.Exit(2)
    import logging
    import warnings

    from biro.errors import DataNote
    from biro.run.log_file import NOTICE

    warnings.simplefilter("ignore", DataNote)  # commands print these lines themselves

    guard.debug = debug
    form = "%(name)s: %(message)s" if verbose else "%(message)s"
    logging.basicConfig(format=form, stream=sys.stderr, force=True)
    # The level is that of the handler, not of the loggers, because log.txt of a run has all messages.
    logging.getLogger().handlers[0].setLevel(logging.INFO if verbose else NOTICE)
    for name in ("biro", "rime_kernels"):
        logging.getLogger(name).setLevel(logging.INFO)


def problem_of_words(words: list[str]) -> str | None:
    """One line about a word that is empty, which no option takes, or a working directory that is gone."""
    for before, word in zip(["biro", *words], words, strict=False):
        if not word.strip() or (word.startswith("--") and word.endswith("=")):
            where = f"after {before}" if not word.strip() else f"of {word[:-1]}"
            return f"the argument {where} is empty, expected a path or a value; is a shell variable unset?"
    try:
        os.getcwd()
    except OSError as error:
        return f"the working directory cannot be used ({error.strerror}); change to one that is there"
    return None


def main(argv: list[str] | None = None) -> None:
    """Run the command `biro`; --debug, --verbose and -v may stand anywhere before `--`."""
    streams = Streams()
    # Modules and figures are made of objects that stay: the default threshold scans them again and again.
    gc.set_threshold(50_000, 20, 50)
    words = list(sys.argv[1:] if argv is None else argv)
    problem = problem_of_variables(os.environ) or problem_of_words(words)
    if problem is not None:
        say(f"biro: {problem}")
        sys.exit(2)
    if not Launch.of(os.environ).is_first:  # which speaks for all
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (open as long as the process)
    os.environ["MPLBACKEND"] = "agg"  # commands draw into files alone, whatever a notebook is set to use
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    end = words.index("--") if "--" in words else len(words)
    everywhere = {"--debug", "--verbose", "-v"}
    moved = [word for word in words[:end] if word in everywhere]
    try:
        app(moved + [word for word in words[:end] if word not in everywhere] + words[end:], prog_name="biro")
    except SystemExit as end_of_command:
        lost = streams.lost()
        if lost is None or end_of_command.code:
            raise
        say(f"biro: the work is done, but the result was not printed ({lost.strerror})")
        sys.exit(3)
