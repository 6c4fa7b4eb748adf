"""The documentation names tests and files that exist."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@functools.cache
def functions(path: Path) -> set[str]:
    """Names of the functions of a module, those inside classes as well."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_each_test_that_the_page_of_faults_names_exists() -> None:
    """A name is `file.py` or `file.py::function`; `::function` is of the file that was named before it."""
    page = (ROOT / "docs" / "developers" / "faults.md").read_text()
    path, n_function, missing = None, 0, []
    for file, function in re.findall(r"`((?:[\w./]+\.py)?)(?:::([\w.]+))?`", page):
        if file:
            folder = ROOT if "/" in file and not file.startswith("..") else ROOT / "tests" / "biro"
            path = (folder / file).resolve()
        if path is None or not path.is_file():
            missing.append(file)
        elif function:
            n_function += 1
            missing += [f"{path.name}::{function}"] if function not in functions(path) else []
    assert not missing
    # The page has some fifty of them: a change of its form must not leave this test with nothing to see.
    assert n_function > 40


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_beside_the_site_lead_somewhere(name: str) -> None:
    """Links among the pages of docs/ are resolved when the site is built; a warning there is an error."""
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / name).read_text())
    relative = [link for link in links if not link.startswith("https://")]
    assert all((ROOT / link.split("#")[0]).exists() for link in relative), relative
    assert links
