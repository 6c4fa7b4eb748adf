"""Files of a catalogue: sky model, FITS table, regions of CASA and of DS9."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from biro._version import __version__
from biro.display.formatting import plain
from biro.errors import InputError
from biro.files.atomic import write_atomic
from biro.imaging.fits import made_header
from biro.models import SkyModel
from biro.models.components.direction import Centre
from biro.models.components.shapes.kinds import SHAPED
from biro.models.components.source import DIMENSIONS, GaussianSource, PointSource, Source
from biro.models.quantities.parameter import Fixed
from biro.models.quantities.strict import key_names
from biro.source_finding.populations.results.catalogue import Catalogue, Entry

_TYPES: dict[str, type[Source]] = {"point": PointSource, "gaussian": GaussianSource, **SHAPED}
_DEG = 180.0 / np.pi
_COLOURS = ((0.9, "green"), (0.5, "yellow"), (0.0, "red"))
"""Colours of regions by the least probability of the source."""


def make_model(entries: Sequence[Entry], centre: Centre, ref_freq: float | None) -> SkyModel:
    """A sky model of sources with fixed values: medians where the source has its most probable type.

    Parameters
    ----------
    entries : sequence of Entry
    centre : (float, float), rad
        From which positions are offsets.
    ref_freq : float, Hz, or None
        Needed where sources have a spectrum.

    Raises
    ------
    InputError
        No entry, or one of a type that a model file does not have.
    ModelError
        A spectrum without reference frequency.
    """
    if not entries:
        raise InputError("no source is probable enough for a model; choose a lower probability")
    given: dict[str, Any] = {} if ref_freq is None else {"ref_freq": Fixed(ref_freq, "Hz")}
    return SkyModel([_source(entry) for entry in entries], centre=centre, **given)


def _source(entry: Entry) -> Source:
    if entry.kind not in _TYPES:
        raise InputError(f"{entry.name}: type {entry.kind!r} is none of a model file: {', '.join(_TYPES)}")
    kind = _TYPES[entry.kind]
    names = key_names(kind)
    unknown = [key for key in entry.typical if key not in names]
    if unknown:
        raise InputError(f"{entry.name}: a {entry.kind} has no {', '.join(unknown)}")
    values = {
        key: Fixed(value, DIMENSIONS[key].si if key in DIMENSIONS else "")
        for key, value in entry.typical.items()
    }
    return kind(entry.name, **values)


def model_text(catalogue: Catalogue, model: SkyModel, least: float) -> str:
    """The model file, with the probability of each source as comments."""
    head = [f"# biro {__version__}: sources that exist with a probability above {plain(least)}, fixed values"]
    head += [
        f"# {entry.name}: probability {entry.probability:.4g} +- {entry.error:.2g}"
        for entry in catalogue.above(least)
    ]
    head += [f"# {one}" for one in catalogue.confusion]
    return "\n".join([*head, "", model.to_toml()])


def write_table(path: Path, catalogue: Catalogue, ref_freq: float | None) -> None:
    """Write the catalogue as a FITS table that `biro.read_sky`, TOPCAT and Astropy read.

    Columns have the names of PyBDSF: Source_Name, RA, DEC, Total_flux, DC_Maj, DC_Min, DC_PA (deg, Jy; sizes
    without the beam, 0 for points), Spec_Indx, with an error E_... each: half of the 68 % interval. Those of
    RA and DEC are angles on the sky. P and E_P are the probability that the source exists and its Monte Carlo
    error, P_<type> those of its types, N_draw the number of draws that have it, Total_flux_low and
    Total_flux_high the ends of the 68 % interval.

    Raises
    ------
    OSError
        It cannot be written.
    """
    from astropy.io import fits

    entries = catalogue.entries

    def values(key: str, scale: float, name: str) -> list[Any]:
        """A column of medians over the most probable type, and one of errors."""
        median = [entry.typical.get(key, 0.0) * scale for entry in entries]
        error = [entry.values[key].error * scale if key in entry.typical else 0.0 for entry in entries]
        unit = {"I": "Jy", "spectral_index": None}.get(key, "deg")
        return [real(name, median, unit), real(f"E_{name}", error, unit)]

    def real(name: str, array: Sequence[float], unit: str | None = None) -> Any:
        return fits.Column(name, "D", unit, array=np.array(array, np.float64))

    columns = [
        fits.Column("Source_Name", "64A", array=np.array([entry.name for entry in entries], dtype="U64")),
        real("P", [entry.probability for entry in entries]),
        real("E_P", [entry.error for entry in entries]),
        fits.Column("N_draw", "K", array=np.array([entry.n_draw for entry in entries], np.int64)),
        real("RA", [entry.ra * _DEG for entry in entries], "deg"),
        real("E_RA", [entry.east.error * _DEG for entry in entries], "deg"),
        real("DEC", [entry.dec * _DEG for entry in entries], "deg"),
        real("E_DEC", [entry.north.error * _DEG for entry in entries], "deg"),
        real("Total_flux", [entry.flux.median for entry in entries], "Jy"),
        real("E_Total_flux", [entry.flux.error for entry in entries], "Jy"),
        real("Total_flux_low", [entry.flux.low_68 for entry in entries], "Jy"),
        real("Total_flux_high", [entry.flux.high_68 for entry in entries], "Jy"),
        *values("emaj", _DEG, "DC_Maj"),
        *values("emin", _DEG, "DC_Min"),
        *values("pa", _DEG, "DC_PA"),
    ]
    if any("spectral_index" in entry.values for entry in entries):
        columns += values("spectral_index", 1.0, "Spec_Indx")
    for kind in entries[0].kinds if entries else ():
        columns.append(real(f"P_{kind}", [entry.kinds[kind] for entry in entries]))
    table = fits.BinTableHDU.from_columns(columns, name="CATALOGUE")
    cards: dict[str, str | float] = {"EQUINOX": 2000.0, "RADESYS": "ICRS", "NOTHER": catalogue.n_other}
    if ref_freq is not None:
        cards["FREQ0"] = ref_freq
    history = [f"biro {__version__}: sources with their probability of existence", *catalogue.notes()]
    table.header.extend(made_header(cards, history))
    buffer = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(buffer)
    write_atomic(path, buffer.getvalue())


def casa_regions(catalogue: Catalogue) -> str:
    """Regions of CASA (.crtf): points as symbols, others as ellipses of half their FWHM, with labels.

    An ellipse is [[ra, dec], [semi-major, semi-minor], pa], with pa from north through east.
    """
    lines = ["#CRTFv0"]
    for entry in catalogue:
        place = f"[{entry.ra * _DEG:.12f}deg, {entry.dec * _DEG:.12f}deg]"
        if entry.is_extended:
            emaj, emin, pa = _shape(entry)
            # A minor axis of 0 is no region.
            axes = f"[{0.5 * emaj:.9g}arcsec, {0.5 * max(emin, 1e-3 * emaj):.9g}arcsec], {pa:.6f}deg"
            shape = f"ellipse [{place}, {axes}]"
        else:
            shape = f"symbol [{place}, +]"
        lines.append(f'{shape}, coord=ICRS, color={_colour(entry)}, label="{_label(entry)}"')
    return "\n".join([*lines, ""])


def ds9_regions(catalogue: Catalogue) -> str:
    """Regions of DS9 (.reg): points as crosses, others as ellipses of half their FWHM, with labels.

    The angle of an ellipse is that of its first axis from the west through north: pa + 90 deg.
    """
    lines = ["# Region file format: DS9 version 4.1", "icrs"]
    for entry in catalogue:
        place = f"{entry.ra * _DEG:.12f},{entry.dec * _DEG:.12f}"
        if entry.is_extended:
            emaj, emin, pa = _shape(entry)
            shape = f'ellipse({place},{0.5 * emaj:.9g}",{0.5 * emin:.9g}",{pa + 90.0:.6f})'
        else:
            shape = f"point({place})"
        mark = "" if entry.is_extended else " point=cross"
        lines.append(f"{shape} #{mark} color={_colour(entry)} text={{{_label(entry)}}}")
    return "\n".join([*lines, ""])


def _shape(entry: Entry) -> tuple[float, float, float]:
    """Full widths at half maximum, arcsec, and position angle, deg."""
    emaj, emin, pa = (entry.typical[key] * _DEG for key in ("emaj", "emin", "pa"))
    return 3600.0 * emaj, 3600.0 * emin, pa


def _label(entry: Entry) -> str:
    return f"{entry.name} P={entry.probability:.2f}"


def _colour(entry: Entry) -> str:
    return next(name for least, name in _COLOURS if entry.probability >= least)
