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


def test_all_files_have_one_version() -> None:
    recipe = (ROOT / "docs" / "conda" / "meta.yaml").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert project["version"] == biro.__version__
    assert f'version = "{biro.__version__}"' in recipe
    assert f"version: {biro.__version__}\n" in citation
    assert re.search(
        rf"^## {re.escape(biro.__version__)} \(\d{{4}}-\d\d-\d\d\)$",
        (ROOT / "CHANGELOG.md").read_text(),
        re.M,
    )
