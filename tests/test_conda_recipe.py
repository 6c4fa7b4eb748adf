"""The conda recipe asks for what pyproject.toml asks for."""

import re
import tomllib
from pathlib import Path

import biro

ROOT = Path(__file__).parents[1]
OTHER_NAMES = {"matplotlib-base": "matplotlib", "astropy-base": "astropy"}
"""Packages that conda-forge has in a form without what biro does not use."""


def test_the_recipe_and_the_project_ask_for_the_same() -> None:
    recipe = (ROOT / "docs" / "conda" / "meta.yaml").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = re.findall(r"^    - ([\w-]+) ([\d.<>=,]+)$", recipe.split("  run:\n")[1], flags=re.MULTILINE)
    wanted = {"python": project["requires-python"]}
    for text in project["dependencies"]:
        name, limits = re.fullmatch(r"([\w-]+)([^;]+)(;.*)?", text).groups()[:2]
        wanted[name] = limits
    assert {OTHER_NAMES.get(name, name): limits for name, limits in asked} == wanted


def test_the_version_is_stated_once() -> None:
    """In `biro/_version.py`, which the build, the recipe and the site read; the changelog dates it."""
    recipe = (ROOT / "docs" / "conda" / "meta.yaml").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "biro._version.__version__"}
    found = re.search(r"""load_file_regex\(load_file="([^"]+)", regex_pattern='([^']+)'""", recipe)
    assert found is not None
    text = (ROOT / "docs" / "conda" / found[1]).read_text()
    assert re.search(found[2], text)[1] == biro.__version__
    heading = rf"^## {re.escape(biro.__version__)} \(\d{{4}}-\d\d-\d\d\)$"
    assert re.search(heading, (ROOT / "CHANGELOG.md").read_text(), re.M)
