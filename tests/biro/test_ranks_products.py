"""Files, cubes, images and interference of data that ranks hold: those of one process, to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from ranks_products_program import make
from started_ranks import mpiexec
from uvfits_file import File

from biro.io.data_set import writable_models

PROGRAM = Path(__file__).with_name("ranks_products_program.py")


def test_products_of_ranks_are_those_of_one_process(
    tmp_path: Path, measurement_set: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """18 shards on two ranks, of which rank 0 never has all; and in files, of one process.

    The cube is in a frame of its own, so that each plane is of other channels at each time.
    """
    path, uvfits = str(measurement_set("wsrt_3c343.1")), str(File().write(tmp_path / "data.uvfits"))
    block = writable_models.BLOCK_VISIBILITIES
    folders = {name: tmp_path / name for name in ("alone", "ranks", "files")}
    for folder in folders.values():
        folder.mkdir()
    (tmp_path / "cache").mkdir()
    make(folders["alone"], path, uvfits)
    make(folders["files"], path, uvfits, cache=tmp_path / "cache")
    monkeypatch.setattr(writable_models, "BLOCK_VISIBILITIES", block)
    done = mpiexec(2, PROGRAM, folders["ranks"], path, uvfits)
    assert done.returncode == 0, done.stdout + done.stderr
    alone = json.loads((folders["alone"] / "found.json").read_text())
    assert not alone.pop("is_held")
    assert sum(alone["planes"]) > 0
    assert alone["unused"]["outside"] > 0
    for name in ("ranks", "files"):
        found = json.loads((folders[name] / "found.json").read_text())
        assert found.pop("is_held")
        assert found == alone
        for file in ("models", "image", "truth"):
            with np.load(folders["alone"] / f"{file}.npz") as one:
                with np.load(folders[name] / f"{file}.npz") as other:
                    assert one.files == other.files
                    for array in one.files:
                        np.testing.assert_array_equal(other[array], one[array], err_msg=f"{file}: {array}")
                assert any(one[array].any() for array in one.files if array[:3] in ("vis", "int"))
        for file in ("cube", "cube-psf"):
            one, other = (fits.getdata(folders[which] / f"{file}.fits") for which in ("alone", name))
            np.testing.assert_array_equal(other, one, err_msg=file)
        copies = [(folders[which] / "copy.uvfits").read_bytes() for which in ("alone", name)]
        assert copies[0] == copies[1] != Path(uvfits).read_bytes()
