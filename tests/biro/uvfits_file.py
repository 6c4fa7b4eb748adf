"""A small UVFITS file, of which tests change what they are about, with numbers worked out by hand."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from astropy.io import fits


@dataclass
class File:
    """A small UVFITS file: 4 groups, 2 IFs, 3 channels, 2 correlations; tests change what they are about."""

    parameters: list[tuple[str, float, float, list[float]]] = field(
        default_factory=lambda: [
            ("UU---SIN", 1e-6, 0.0, [1.0, 2.0, 3.0, 4.0]),
            ("VV---SIN", 1e-6, 0.0, [0.5, 0.5, 0.5, -0.5]),
            ("WW---SIN", 1e-6, 0.0, [0.0, 0.25, 0.0, 0.0]),
            ("BASELINE", 1.0, 0.0, [258.0, 259.0, 515.0, 258.0]),
            ("DATE", 1.0, 2455197.5, [0.0, 0.0, 0.0, 0.25]),
            ("DATE", 1.0, 0.0, [0.125, 0.125, 0.125, 0.125]),
        ]
    )
    axes: list[tuple[str, int, float, float, float]] = field(
        default_factory=lambda: [
            ("COMPLEX", 3, 1.0, 1.0, 1.0),
            ("STOKES", 2, -1.0, 1.0, -1.0),
            ("FREQ", 3, 1.4e9, 2.0, 1e6),
            ("IF", 2, 1.0, 1.0, 1.0),
            ("RA", 1, 187.5, 1.0, 1.0),
            ("DEC", 1, 12.25, 1.0, 1.0),
        ]
    )
    bitpix: int = -32
    cards: dict[str, object] = field(default_factory=lambda: {"OBJECT": "M87", "EQUINOX": 2000.0})
    history: list[str] = field(default_factory=list)
    data: np.ndarray | None = None
    antennas: list[fits.BinTableHDU] = field(default_factory=lambda: [antenna_table()])
    others: list[fits.BinTableHDU] = field(default_factory=lambda: [frequency_table([1])])

    def values(self) -> np.ndarray:
        """Visibility g + 10 IF + 100 chan + 1000 corr, i times it, weight 1 + IF; the first is flagged."""
        if self.data is not None:
            return self.data
        shape = (4, *(axis[1] for axis in reversed(self.axes)))
        values = np.zeros(shape)
        g, _, _, i, c, p = np.indices(shape[:-1])
        values[..., 0] = g + 10 * i + 100 * c + 1000 * p
        values[..., 1] = -values[..., 0]
        values[..., 2] = 1 + i
        values[0, 0, 0, 0, 0, 0, 2] *= -1
        return values

    def write(self, path: Path) -> Path:
        header = fits.Header()
        header["SIMPLE"], header["BITPIX"], header["NAXIS"] = True, self.bitpix, 1 + len(self.axes)
        header["NAXIS1"] = 0
        for i, (name, length, value, pixel, step) in enumerate(self.axes, 2):
            header[f"NAXIS{i}"] = length
            for key, item in (("CTYPE", name), ("CRVAL", value), ("CRPIX", pixel), ("CDELT", step)):
                header[f"{key}{i}"] = item
        header["EXTEND"], header["GROUPS"] = True, True
        header["PCOUNT"], header["GCOUNT"] = len(self.parameters), 4
        for i, (name, scale, zero, _) in enumerate(self.parameters, 1):
            header[f"PTYPE{i}"], header[f"PSCAL{i}"], header[f"PZERO{i}"] = name, scale, zero
        for key, item in self.cards.items():
            header[key] = item
        for line in self.history:
            header.add_history(line)
        stored = {16: ">i2", -32: ">f4", -64: ">f8"}[self.bitpix]
        numbers = np.concatenate(
            [np.array([p[3] for p in self.parameters]).T, self.values().reshape(4, -1)], axis=1
        )
        content = numbers.astype(stored).tobytes()
        text = header.tostring().encode() + content + bytes(-len(content) % 2880)
        for hdu in (*self.antennas, *self.others):
            buffer = io.BytesIO()
            fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(buffer)
            text += buffer.getvalue()[2880:]
        path.write_bytes(text)
        return path

    def replace(self, name: str, *new: tuple[str, float, float, list[float]]) -> File:
        """Put other random parameters in the place of one."""
        at = next(i for i, p in enumerate(self.parameters) if p[0] == name)
        self.parameters[at : at + 1] = new
        return self


def antenna_table(version: int = 1, names: str = "A B C", **cards: object) -> fits.BinTableHDU:
    labels = names.split()
    n = len(labels)
    columns = [
        fits.Column("ANNAME", "8A", array=labels),
        fits.Column("STABXYZ", "3D", array=np.arange(3.0 * n).reshape(n, 3) + 100 * version),
        fits.Column("NOSTA", "1J", array=np.arange(1, n + 1)),
        fits.Column("DIAMETER", "1E", array=np.full(n, 12.0)),
    ]
    keys = {"EXTNAME": "AIPS AN", "EXTVER": version, "ARRAYX": 0.0, "ARRAYY": 0.0, "ARRAYZ": 0.0}
    hdu = fits.BinTableHDU.from_columns(columns)
    hdu.header.update({**keys, "TIMSYS": "UTC", **cards})
    return hdu


def frequency_table(ids: list[int], sideband: int = 1) -> fits.BinTableHDU:
    """Two IFs, 100 MHz apart, and 10 MHz higher under each further id."""
    n = len(ids)
    offset = [[1e7 * i, 1e8 + 1e7 * i] for i in range(n)]
    columns = [
        fits.Column("FRQSEL", "1J", array=ids),
        fits.Column("IF FREQ", "2D", array=offset),
        fits.Column("CH WIDTH", "2E", array=[[1e6, 2e6]] * n),
        fits.Column("TOTAL BANDWIDTH", "2E", array=[[3e6, 6e6]] * n),
        fits.Column("SIDEBAND", "2J", array=[[1, sideband]] * n),
    ]
    hdu = fits.BinTableHDU.from_columns(columns)
    hdu.header["EXTNAME"] = "AIPS FQ"
    return hdu


def source_table(equinox: float = 2000.0, offset: float = 0.0) -> fits.BinTableHDU:
    columns = [
        fits.Column("ID. NO.", "1J", array=[7, 3]),
        fits.Column("SOURCE", "16A", array=["3C84", "3C286"]),
        fits.Column("RAEPO", "1D", array=[49.9, 202.8]),
        fits.Column("DECEPO", "1D", array=[41.5, 30.5]),
        fits.Column("EPOCH", "1D", array=[equinox] * 2),
        fits.Column("FREQOFF", "2D", array=[[offset, 0.0], [0.0, 0.0]]),
    ]
    hdu = fits.BinTableHDU.from_columns(columns)
    hdu.header["EXTNAME"] = "AIPS SU"
    return hdu
