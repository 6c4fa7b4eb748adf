"""Tables as Markdown, and the sections of a page of the documentation that are made of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

NOTHING = "No run has been committed yet."


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def replace_section(page: str, name: str, program: str, content: str) -> str:
    """Return a page with new content between the two markers of a section.

    They are `<!-- NAME: benchmarks/PROGRAM -->` and `<!-- end of NAME -->`.
    """
    begin, end = f"<!-- {name}: benchmarks/{program} -->", f"<!-- end of {name} -->"
    before, rest = page.split(begin)
    return f"{before}{begin}\n\n{content}\n\n{end}{rest.split(end)[1]}"


def page_arguments(text: str | None) -> argparse.Namespace:
    """Parse the options of a program that writes a page: `--check`, whose other name is `--quick`."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check",
        "--quick",
        action="store_true",
        help="write nothing; end with 1 where the page is out of date",
    )
    return parser.parse_args()


def write_page(path: Path, text: str, program: str, *, check: bool) -> int:
    """Write a page, or compare it with its file alone; return the exit status of the program."""
    if not check:
        path.write_text(text, encoding="utf-8")
        print(f"written: {path.name}")
        return 0
    is_current = path.read_text(encoding="utf-8") == text
    words = "is up to date" if is_current else f"differs from the files of results: run benchmarks/{program}"
    print(f"{path.name} {words}")
    return int(not is_current)
