"""Modules that moved are found under their earlier names."""

import sys
from importlib import import_module

import pytest
from commands import python

import biro
from biro._moved import MOVED


@pytest.mark.parametrize("earlier", ["images", "measurement_set", "stages", "target", "misfit.lines"])
def test_an_earlier_name_gives_the_module_itself_with_a_warning(earlier: str) -> None:
    present = import_module(f"biro.{MOVED[earlier]}")
    spec = present.__spec__
    sys.modules.pop(f"biro.{earlier}", None)
    with pytest.warns(DeprecationWarning, match=f"biro.{earlier} is called biro.{MOVED[earlier]} now"):
        found = import_module(f"biro.{earlier}")
    assert found is present
    assert found.__spec__ is spec
    assert found.__name__ == f"biro.{MOVED[earlier]}"


def test_a_script_sees_the_warning_at_its_own_line_and_no_class_twice(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from biro.imaging.psf import RestoringBeam as now\n"
        "from biro.images.psf import RestoringBeam as before\n"
        "assert now is before\n"
    )
    done = python(script, check=True)
    assert "script.py:2: DeprecationWarning: biro.images is called biro.imaging now" in done.stderr


def test_a_module_under_its_earlier_name_is_an_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(biro.__dict__, "images", raising=False)  # where an import has set it
    with pytest.warns(DeprecationWarning, match="biro.images is called biro.imaging now") as caught:
        assert biro.images is import_module("biro.imaging")
    assert caught[0].filename == __file__  # the line of the user, or Python hides the warning
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = biro.nothing


def test_every_name_in_the_table_leads_to_a_module() -> None:
    for earlier, present in MOVED.items():
        assert import_module(f"biro.{present}").__name__ == f"biro.{present}", earlier


def test_a_module_that_never_was_is_named_as_it_was_written() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'biro\.images\.nothing'"):
        import_module("biro.images.nothing")


def test_an_earlier_name_can_be_run(tmp_path) -> None:
    """`python -m` of a package under its earlier name runs the same program."""
    done = [python("-m", f"biro.{name}.child") for name in ("measurement_set", "io.measurement_set")]
    assert "get_code" not in done[0].stderr
    assert done[0].returncode == done[1].returncode
