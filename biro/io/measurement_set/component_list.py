"""Read a component list of CASA, which is a casacore table, as a sky model."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

from biro.errors import MeasurementSetError, ModelError
from biro.files.foreign_text import visible_line
from biro.io.measurement_set.process import MeasurementSetProcess
from biro.io.measurement_set.storage import existing_set
from biro.models.components.source import PHASE_CENTRE
from biro.models.files.components import ListComponent, as_ellipse, to_model
from biro.models.quantities.parameter import read_entry
from biro.models.quantities.units import FLUX, FREQUENCY, factor
from biro.models.sky import SkyModel

FRAMES = ("J2000", "ICRS")
"""Frames of directions; both are taken as ICRS, as those of Measurement Sets are."""
TERMS = {"Constant": 0, "Spectral Index": 1, "Power Logarithmic Polynomial": None}
"""How many terms each kind of spectrum has; None where any number."""


def read_component_list(path: str | os.PathLike[str], time_limit: float = 30.0) -> SkyModel:
    """The components of a list that CASA's tool `componentlist` has saved, as a model without priors.

    Points and Gaussians with constant spectra, spectral indices or polynomials of logarithms. Position angles
    are from the north of the phase centre, as CASA predicts them. Frequencies are taken as they are, whatever
    frame they are in.

    Parameters
    ----------
    path : path of the folder
    time_limit : float, s
        How long to wait for a lock, or for a storage that does not answer.

    Returns
    -------
    SkyModel

    Raises
    ------
    MeasurementSetError
        No such table, another kind of table, a broken or a locked one.
    ModelError
        Names the component and what was found: another shape or spectrum, a flux that is not in Stokes
        parameters, a direction in another frame, polarisation with a spectrum.
    """
    folder = existing_set(path, time_limit)
    with MeasurementSetProcess(folder, time_limit) as child:
        answer = child.call("components", path=str(folder))
    try:
        return to_model(components_of(answer["components"]))
    except ModelError as error:
        raise ModelError(visible_line(f"{path}: {error}")) from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise MeasurementSetError(f"{path}: a broken component list ({visible_line(error)})") from None


def components_of(rows: Sequence[Mapping[str, object]]) -> list[ListComponent]:
    """The components of rows as the child process sends them.

    Raises
    ------
    ModelError
        Names the row, what was found and what was expected.
    """
    return [read_entry(f"component {number}", _component, number, row) for number, row in enumerate(rows)]


def _component(number: int, row: Mapping[str, object]) -> ListComponent:
    if row["polarisation"] != "Stokes":
        raise ModelError(f"its flux is in {row['polarisation']}; expected Stokes (cl.convertfluxpol)")
    if row["frame"] not in FRAMES:
        raise ModelError(f"its direction is in {row['frame']}; expected {' or '.join(FRAMES)}")
    stokes = _numbers(row, "flux", 4, factor(str(row["flux_unit"]), FLUX))
    ra, dec = _numbers(row, "direction", 2)
    if not abs(dec) <= math.pi / 2:
        raise ModelError(f"its declination must lie within -90 .. 90 deg, found {math.degrees(dec):g} deg")
    terms, ref_freq = _spectrum(row)
    if terms and any(stokes[1:]):
        raise ModelError(
            "it is polarised and has a spectrum, but a component list states no spectrum for Q, U and V"
        )
    return ListComponent(
        name=str(row["label"]) or f"c{number}",
        ra=ra,
        dec=dec,
        stokes=stokes,
        terms=(terms,) * 4,
        ref_freq=ref_freq if terms else None,
        shape=_shape(row),
        frame=PHASE_CENTRE,
    )


def _numbers(row: Mapping[str, object], key: str, n: int | None, scale: float = 1.0) -> tuple[float, ...]:
    given = row[key]
    if not isinstance(given, list) or (n is not None and len(given) != n):
        raise ModelError(f"{key}: expected {n} numbers, found {given!r}"[:200])
    numbers = tuple(float(item) * scale for item in given)
    if not all(map(math.isfinite, numbers)):
        raise ModelError(f"{key}: expected finite numbers, found {given!r}"[:200])
    return numbers


def _spectrum(row: Mapping[str, object]) -> tuple[tuple[float, ...], float]:
    """Terms in natural logarithms, none where all are 0, and the reference frequency, Hz."""
    kind = str(row["spectrum"])
    if kind not in TERMS:
        raise ModelError(f"its spectrum is {kind}; expected one of {', '.join(TERMS)}")
    terms = _numbers(row, "spectral_parameters", TERMS[kind])
    if not any(terms):
        return (), 0.0
    (freq,) = _numbers(row, "frequency", 1, factor(str(row["frequency_unit"]), FREQUENCY))
    if not freq > 0:
        raise ModelError(f"its reference frequency must be positive, found {freq:g} Hz")
    return terms, freq


def _shape(row: Mapping[str, object]) -> tuple[float, float, float] | None:
    """FWHM of the axes and position angle, rad; None for a point."""
    kind = row["shape"]
    if kind == "Point":
        return None
    if kind != "Gaussian":
        raise ModelError(f"its shape is {kind}; expected Point or Gaussian")
    major, minor, pa = _numbers(row, "shape_parameters", 3)
    return as_ellipse(major, minor, pa)
