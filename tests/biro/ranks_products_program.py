"""What is made of data that ranks hold, as mpiexec starts it; files and figures go into a folder.

mpiexec -n 2 python tests/biro/ranks_products_program.py FOLDER SET UVFITS
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

import biro
from biro.io.data_set import writable_models
from biro.io.uvfits import groups
from biro.io.uvfits.write import write_uvfits
from biro.models import ImageModel
from biro.models.files.toml import from_toml
from biro.observation.partition import Partition
from biro.simulation.interference import Interference
from biro.simulation.npz import write_npz, write_truth
from biro.simulation.prediction import predict

if TYPE_CHECKING:
    from mpi4py import MPI

ARCSEC = float(np.pi / 648000)
SKY = """
[[source]]
name = "a"
type = "point"
east = "3 arcmin"
north = "-5 arcmin"
I = "1.5 Jy"
Q = "0.2 Jy"
"""


def gathers_all(*_: object) -> NoReturn:
    """In place of what takes all data into one process."""
    raise AssertionError("rank 0 gathers all visibilities")


def sky_image(centre: tuple[float, float]) -> ImageModel:
    """Some pixels off centre, and off the phase centre."""
    pixels = np.zeros((1, 1, 64, 64))
    pixels[0, 0, [20, 40, 33], [13, 50, 8]] = 2.0, -0.5, 1.0
    return ImageModel(pixels, 20 * ARCSEC, (centre[0] + 1e-3, centre[1]))


def make(folder: Path, path: str, uvfits: str, comm: MPI.Intracomm | None = None, **options: Any) -> None:
    """Model visibilities, a cube of what they leave, interference, and a copy of a UVFITS file."""
    writable_models.BLOCK_VISIBILITIES = 1000  # several blocks
    observation = biro.read(path, comm=comm, allow_unusable=True, **options)
    sky, image = from_toml(SKY), sky_image(observation.partitions[0].phase_centre)
    models = list(predict(observation, sky, image=image, backend="cpu"))
    write_npz(folder / "models.npz", observation, models)
    (alone,) = predict(observation, None, image=image, backend="cpu", smearing="on")
    write_npz(folder / "image.npz", observation, [alone])
    cube = biro.image(
        observation, "residual", model=models, cube=True, frame="LSRK", density="cube", weighting="briggs",
        cell="20 arcsec", size=32, stokes="I", channels_per_plane=3, backend="cpu",
    )  # fmt: skip
    saved = cube.save(folder / "cube")
    disturbed, (truth,) = Interference(("drifting line", "burst"), 3.0).add(observation, seed=1)
    share = write_truth(folder / "truth.npz", disturbed.partitions[0], truth)
    copied = biro.read(uvfits, comm=comm, allow_unusable=True, spws=[0], **options)
    report = write_uvfits(
        uvfits, folder / "copy.uvfits", copied, predict(copied, sky, backend="cpu"), mode="add"
    )
    found = {
        "unused": vars(saved.unused),
        "planes": [plane.n_vis for plane in saved.planes],
        "digest": disturbed.digest(),
        "share": share,
        "copied": vars(report),
        "is_held": observation.is_distributed,
    }
    (folder / "found.json").write_text(json.dumps(found))


def main(folder: str, path: str, uvfits: str) -> None:
    """Make all by as many ranks as there are."""
    from mpi4py import MPI

    Partition.whole = gathers_all  # type: ignore[method-assign]
    writable_models._values = gathers_all
    groups.BLOCK_BYTES = 300  # several blocks
    make(Path(folder), path, uvfits, MPI.COMM_WORLD)


if __name__ == "__main__":
    main(*sys.argv[1:])
