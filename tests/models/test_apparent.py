"""Sources of apparent flux, `beam = false`: what is read, written and refused."""

from __future__ import annotations

import pytest

from biro.models import AiryBeam, ModelError, PointSource, SkyModel
from biro.models.files import write_sky
from biro.models.files.toml import from_toml

TEXT = """
[[source]]
name = "a"
east = "1 arcmin"
north = "0 arcmin"
I = "1 Jy"
beam = false

[[source]]
name = "b"
east = "0 arcmin"
north = "0 arcmin"
I = "2 Jy"
"""


def test_files_say_it_and_leave_it_out_where_it_is_as_always(tmp_path) -> None:
    sky = from_toml(TEXT)
    assert [source.beam for source in sky.sources] == [False, True]
    assert sky.to_toml().count("beam") == 1
    assert from_toml(sky.to_toml()) == sky


def test_a_scalar_beam_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        ModelError, match=r"source 'a': beam = false, .* write kind = \"dish\", pattern"
    ) as caught:
        SkyModel([PointSource("a", east="0 deg", north="0 deg", I="1 Jy", beam=False)], beam=AiryBeam("25 m"))
    assert "\n" not in str(caught.value)


def test_component_lists_cannot_say_it(tmp_path) -> None:
    sky = from_toml(TEXT + '[sky]\ncentre = "0 deg 0 deg"\n')
    with pytest.raises(ModelError, match="source 'a': a component list cannot store beam = false"):
        write_sky(sky, tmp_path / "list.bbs")
