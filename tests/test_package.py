"""The wheel and the editable install bring `biro` and `rime_kernels`, and nothing called `models`."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
CHECK = """
import sys, site
{path_setup}
sys.path.append({site_packages!r})
import biro, biro.models, biro.models.errors, rime_kernels, models
from pathlib import Path
home = Path({home!r})
for module in (biro, biro.models, rime_kernels):
    assert home in Path(module.__file__).parents, module.__file__
assert models.WHOSE == "somebody else's", models.__file__
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the distribution is built from, links kept."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("biro", "models", "rime_kernels"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(command, check=True)
    (path,) = folder.glob("biro_rime-*.whl")
    return path


def run_beside_foreign_models(folder: Path, where: str, path_setup: str, home: Path) -> None:
    """Import biro with a `models` of somebody else beside the script, or installed."""
    folder.mkdir()
    script = folder / "script.py"
    site_packages = sysconfig.get_path("purelib")
    script.write_text(CHECK.format(site_packages=site_packages, path_setup=path_setup, home=str(home)))
    if where == "beside the script":
        (folder / "models.py").write_text('WHOSE = "somebody else\'s"\n')
    # -S: no site-packages hooks, so that no biro installed for the tests is found instead.
    done = subprocess.run([sys.executable, "-S", str(script)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("where", ["beside the script", "installed"])
@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_models_of_others_are_left_alone(
    kind: str, where: str, source: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = tmp_path / "installed"
    install = [*PIP, "install", "--no-deps", "--no-build-isolation", "--target", str(target)]
    if kind == "wheel":
        subprocess.run([*install, str(request.getfixturevalue("wheel"))], check=True)
        home, path_setup = target, f"sys.path.insert(1, {str(target)!r})"
        assert not (target / "models").exists()
    else:
        subprocess.run([*install, "-e", str(source)], check=True)
        home, path_setup = source, f"site.addsitedir({str(target)!r})"
    if where == "installed":
        (target / "models").mkdir()
        (target / "models" / "__init__.py").write_text('WHOSE = "somebody else\'s"\n')
    run_beside_foreign_models(tmp_path / "user", where, path_setup, home)


@pytest.mark.slow
def test_the_wheel_holds_two_packages(source: Path, wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"biro", "rime_kernels"}
    assert "biro/models/__init__.py" in names
    assert "biro/py.typed" in names
    assert "biro/models/py.typed" in names
    # Every module of the source is in the wheel.
    for room, inside in (("biro", "biro"), ("models", "biro/models"), ("rime_kernels", "rime_kernels")):
        for path in (source / room).rglob("*.py"):
            if (source / "biro" / "models") not in path.parents:
                assert f"{inside}/{path.relative_to(source / room)}" in names
