"""Formats of data that biro does not read, by what their files hold, and the program that converts them."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path

from biro.errors import DataError
from biro.files.hdf5 import list_hdf5

_MWA = "UVData.read_mwa_corr_fits of pyuvdata reads it with its .metafits, and write_uvh5 makes UVH5 of it"
_FHD = "UVData.read_fhd of pyuvdata reads it with its flags, and write_uvh5 makes UVH5 of it"
STARTS: dict[bytes, str] = {
    b"SR\x00\x04": f"a file that IDL saved; if it is FHD's, {_FHD}",
    b"OSKARBIN": "visibilities of OSKAR; oskar_vis_to_ms makes a Measurement Set of it",
    b"REDIS": "a MeerKAT archive (RDB); mvftoms.py of katdal makes a Measurement Set of it",
}
"""What a file is, by its first bytes."""
FOLDERS: dict[str, str] = {
    "ASDM.xml": "an archive of ALMA or the VLA (ASDM); CASA's importasdm makes a Measurement Set of it",
    "*_vis_XX.sav": f"FHD; {_FHD}",
    "vis_data/*_vis_XX.sav": f"FHD; {_FHD}",
}
"""What a folder is, by the name of a file in it."""
IDI_TABLES = {"UV_DATA", "ARRAY_GEOMETRY", "INTERFEROMETER_MODEL"}
"""Tables of which FITS-IDI has one at least."""


def name_start(start: bytes) -> str:
    """What a file of another format is, by its first bytes; empty where these are not known."""
    return next((text for begin, text in STARTS.items() if start.startswith(begin)), "")


def name_folder(folder: Path) -> str:
    """What a folder of another format is; empty where it is not known."""
    inside = [path.name for path in folder.iterdir()]
    sub = folder / "vis_data"
    inside += [f"vis_data/{path.name}" for path in sub.iterdir()] if sub.is_dir() else []
    return next((text for name, text in FOLDERS.items() if any(fnmatch(one, name) for one in inside)), "")


def name_fits(keywords: Collection[str], tables: Collection[str]) -> str:
    """What a FITS file without random groups is, by keywords of its first header and names of tables."""
    if IDI_TABLES & set(tables):
        return "FITS-IDI; CASA's importfitsidi, or AIPS's FITLD and FITTP, convert it"
    if "PROJID" in keywords and {"MARKER", "MILLITIM"} & set(keywords):
        return f"FITS of the MWA's correlator; {_MWA}"
    if "GPSTIME" in keywords:
        return f"metadata or flags of the MWA (FITS); its visibilities are in other files. {_MWA}"
    return "FITS without random groups, so not UVFITS (an image?)"


def refuse_other_hdf5(path: Path) -> None:
    """Refuse an HDF5 file that is not UVH5.

    Raises
    ------
    DataError
        With what it is.
    """
    try:
        nodes = list_hdf5(path)
    except (ValueError, OSError) as error:
        raise DataError(f"{path}: HDF5 that cannot be read ({error}); damaged or cut off?") from None
    if {"Header", "Data"} <= set(nodes):
        return
    if any(name.count("/") == 2 and name.endswith("/val") for name in nodes):
        raise DataError(
            f'{path}: gains (H5parm), not visibilities; a model applies them, [gain] table = "{path}"'
        )
    if "biro" in nodes:
        raise DataError(f"{path}: a result of biro, not visibilities; biro plot and biro report read its run")
    raise DataError(f"{path}: HDF5, but not UVH5: it has no groups Header and Data")
