"""The command-line options that all benchmarks have in common."""

from __future__ import annotations

import argparse
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"


def make_parser(
    text: str | None, *, device: bool = False, repeat: int | None = None
) -> argparse.ArgumentParser:
    """Make a parser with `--quick` and `--output`, and what else is asked for.

    Parameters
    ----------
    text : str
        The program's docstring.
    device : bool
        Whether the program has `--device`: "cpu", which is the default, or "cuda".
    repeat : int, optional
        The default of `--repeat`, where the program has it; a quick run makes one call.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="tiny cases, in seconds: does it work, not how fast is it"
    )
    parser.add_argument(
        "--output", type=Path, help="file of the results (default: in benchmarks/results; none if quick)"
    )
    if device:
        parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    if repeat is not None:
        text = f"calls that are timed of each (default {repeat}, 1 if quick)"
        parser.add_argument("--repeat", type=int, help=text)
        parser.set_defaults(repeat_in_full=repeat)
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line, and fill in what depends on `--quick`."""
    args = parser.parse_args()
    if getattr(args, "repeat", 1) is None:
        args.repeat = 1 if args.quick else args.repeat_in_full
    return args


def output_path(args: argparse.Namespace, *default: str) -> Path | None:
    """Return where the results go: `--output`, or the default below benchmarks/results, or None if quick."""
    if args.output is not None or args.quick:
        output: Path | None = args.output
        return output
    return RESULTS.joinpath(*default)
