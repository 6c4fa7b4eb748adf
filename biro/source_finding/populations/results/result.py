"""The result of a fit with an unknown number of sources: number, catalogue, map, counts, files, pictures."""

from __future__ import annotations

import io
import json
import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.display.formatting import html_text, plain, sexagesimal
from biro.errors import InputError
from biro.files.atomic import write_atomic, write_figure
from biro.files.json_value import JsonValue
from biro.files.npz import read_npz, reading
from biro.imaging.psf import RestoringBeam
from biro.models import SkyModel
from biro.models.components.direction import Centre
from biro.source_finding.populations.results.catalogue import Catalogue, make_catalogue
from biro.source_finding.populations.results.counts import SourceCounts, source_counts
from biro.source_finding.populations.results.draws import SourceDraws
from biro.source_finding.populations.results.files import (
    casa_regions,
    ds9_regions,
    make_model,
    model_text,
    write_table,
)
from biro.source_finding.populations.results.mixture import NONE
from biro.source_finding.populations.results.number import NumberProbability, number_probability
from biro.source_finding.populations.results.number_map import NumberMap, number_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
FILE = "population.npz"
"""Where a folder has the draws."""
LEAST = 0.05
"""Sources in a catalogue exist with more than this probability."""
MODEL = 0.5
"""Sources in a model file exist with more than this probability."""
_VERSION = 1
_WHAT = "draws of a population"


@dataclass(frozen=True, eq=False, repr=False)
class PopulationResult:
    """Sources of one population given the data: how many there are, where, how bright, and how certain.

    Attributes
    ----------
    draws : SourceDraws
    centre : (float, float), rad
        ICRS right ascension and declination from which east and north are offsets.
    beam : RestoringBeam
        Resolution of the data: sources closer than it may be confused.
    n_effective : float
        Independent draws, of the number of sources and of whatever mixes most slowly. More than there are
        draws count as that many. All Monte Carlo errors follow from it.
    log_posterior : float64 (n_draw,), optional
    ref_freq : float, Hz, optional
        Where flux densities hold, for sources with a spectrum.

    Raises
    ------
    InputError
        A beam or `n_effective` that is not above 0, or another length of `log_posterior`.
    """

    draws: SourceDraws
    centre: Centre
    beam: RestoringBeam
    n_effective: float
    log_posterior: Array | None = None
    ref_freq: float | None = None

    def __post_init__(self) -> None:
        if not (0.0 < self.beam.minor <= self.beam.major < math.inf):
            raise InputError(
                f"beam: a FWHM above 0, major at least minor, got {self.beam.major!r} and {self.beam.minor!r}"
            )
        if not self.n_effective > 0.0:
            raise InputError(f"n_effective: a number of draws above 0, got {self.n_effective!r}")
        object.__setattr__(self, "n_effective", float(min(self.n_effective, self.draws.n_draw)))
        if self.log_posterior is not None and np.shape(self.log_posterior) != (self.draws.n_draw,):
            raise InputError(
                f"log_posterior must have shape ({self.draws.n_draw},), one of each draw, got "
                f"{np.shape(self.log_posterior)}"
            )

    def __repr__(self) -> str:
        return f"<PopulationResult {self.draws.name}: {self.draws.n_draw} draws; print() shows the catalogue>"

    def __str__(self) -> str:
        return "\n".join([self._head(), "", str(self.number_probability()), "", str(self.catalogue())])

    def _repr_html_(self) -> str:
        tables = self.number_probability()._repr_html_() + self.catalogue()._repr_html_()
        return html_text(self._head()) + tables

    def _head(self) -> str:
        place = " ".join(sexagesimal(*self.centre))
        n, effective = self.draws.n_draw, plain(self.n_effective, 3)
        return f"{self.draws.name}: {n} draws, {effective} effective; offsets from {place}"

    def number_probability(self) -> NumberProbability:
        """Probability of each number of sources, with Monte Carlo errors."""
        return number_probability(self.draws.number, self.n_effective)

    def catalogue(self, least: float = LEAST) -> Catalogue:
        """Sources that exist in more than a part `least` of the draws.

        Raises
        ------
        InputError
            `least` is not within 0 .. 1.
        """
        return self._catalogue if least == LEAST else self._make_catalogue(least)

    @cached_property
    def _catalogue(self) -> Catalogue:
        return self._make_catalogue(LEAST)

    def _make_catalogue(self, least: float) -> Catalogue:
        first = None if self.log_posterior is None else int(np.argmax(self.log_posterior))
        return make_catalogue(
            self.draws, self.centre, self.beam, self.n_effective, least=least, first_draw=first
        )

    def probability_map(self, cell: float | None = None, *, residual: bool = False) -> NumberMap:
        """Expected number of sources in each pixel; its sum is the mean number of sources.

        Parameters
        ----------
        cell : float, rad, optional
            By default a fifth of the beam's minor axis, or so that the map has 2048 pixels along a side.
        residual : bool
            Whether sources of no entry of the catalogue count alone.

        Raises
        ------
        InputError
            A cell of 0 or less, or one so small that the map has more than 16384 pixels along a side.
        """
        chosen = self.catalogue().label == NONE if residual else None
        return number_map(self.draws, self.centre, self.beam, self.n_effective, cell, chosen)

    def counts(self, edges: ArrayLike | None = None) -> SourceCounts:
        """Integral and differential source counts; `edges` (Jy) are 5 a decade by default.

        Raises
        ------
        InputError
            Edges that do not ascend, or begin at 0 or below.
        """
        return source_counts(self.draws, self.n_effective, edges)

    def model(self, least: float = MODEL) -> SkyModel:
        """A sky model of the sources that exist with more than a probability, with fixed values.

        Raises
        ------
        InputError
            There is no such source.
        ModelError
            Sources have a spectrum, but `ref_freq` is not given.
        """
        return make_model(self.catalogue().above(least), self.centre, self.ref_freq)

    def to_dict(self) -> dict[str, JsonValue]:
        """Figures for JSON: angles in rad, fluxes in Jy."""
        return {
            "name": self.draws.name,
            "n_draw": self.draws.n_draw,
            "n_effective": self.n_effective,
            "centre": list(self.centre),
            "beam": vars(self.beam),
            "number": self.number_probability().to_dict(),
            "catalogue": self.catalogue().to_dict(),
            "counts": self.counts().to_dict(),
        }

    def plot(
        self, background: Array | None = None, extent: tuple[float, float, float, float] | None = None
    ) -> Figure:
        """The field with the sources of draws and the entries of the catalogue, over an image.

        Parameters
        ----------
        background : float64 (n_y, n_x), optional
        extent : (float, float, float, float), rad
            Of the background: east of its left and right edge, north of its lower and upper edge.

        Raises
        ------
        InputError
            A background without extent.
        """
        from biro.source_finding.populations.results.pictures import draw_field

        return draw_field(self.draws, self.catalogue(), self.beam, background, extent)

    def plot_number(self) -> Figure:
        """Bars of the probability of each number of sources."""
        from biro.source_finding.populations.results.pictures import draw_number

        return draw_number(self.number_probability())

    def plot_counts(self) -> Figure:
        """Source counts.

        Raises
        ------
        InputError
            No draw has a source with a flux above 0.
        """
        from biro.source_finding.populations.results.pictures import draw_counts

        return draw_counts(self.counts())

    def pictures(self) -> dict[str, Figure]:
        """Bars of the number, the field and, where there are sources, their counts, by the names of files."""
        figures = {"number.png": self.plot_number(), "field.png": self.plot()}
        return figures | ({"counts.png": self.plot_counts()} if len(self.counts().number) else {})

    def write(
        self, folder: str | os.PathLike[str], *, overwrite: bool = False, pictures: bool = True
    ) -> list[Path]:
        """Write everything into a folder.

        Returns
        -------
        list of Path
            population.npz (the draws), summary.txt, population.json, catalogue.fits, catalogue.crtf (CASA),
            catalogue.reg (DS9), sky.toml (sources with a probability above 0.5; not written where there is
            none, which summary.txt states), number_map.fits and number_map_error.fits, counts.csv, and
            pictures number.png, field.png and counts.png.

        Raises
        ------
        InputError
            There is a result already and `overwrite` is not given.
        OSError
            A file cannot be written.
        """
        place = Path(folder)
        if not overwrite and (place / FILE).exists():
            raise InputError(f"{place}: has a population already; choose another folder or give overwrite")
        place.mkdir(parents=True, exist_ok=True)
        catalogue, counts = self.catalogue(), self.counts()
        text = f"{self}\n"
        texts = {"catalogue.crtf": casa_regions(catalogue), "catalogue.reg": ds9_regions(catalogue)}
        if catalogue.above(MODEL):
            texts["sky.toml"] = model_text(catalogue, self.model(), MODEL)
        else:
            (place / "sky.toml").unlink(missing_ok=True)  # that of an earlier result
            text += f"no source exists with a probability above {MODEL:g}: there is no sky.toml\n"
        texts |= {"summary.txt": text, "population.json": json.dumps(self.to_dict(), indent=1) + "\n"}
        for name, content in texts.items():
            write_atomic(place / name, content.encode())
        write_table(place / "catalogue.fits", catalogue, self.ref_freq)
        numbers = self.probability_map()
        numbers.write(place / "number_map.fits")
        numbers.write(place / "number_map_error.fits", error=True)
        counts.write(place / "counts.csv")
        names = [*texts, "catalogue.fits", "number_map.fits", "number_map_error.fits", "counts.csv"]
        if pictures:
            figures = self.pictures()
            for name, figure in figures.items():
                write_figure(place / name, figure, dpi=150)
            names += figures
        self.save(place / FILE)  # last, because it says that the folder is complete
        return [place / name for name in (FILE, *names)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the draws and what belongs to them as one file of NumPy (.npz), which `load` reads exactly.

        Arrays: draw, kind and value_<name> of each source, number (of sources in each draw), types, and a
        text "facts" in JSON with centre, beam, n_effective and ref_freq.

        Raises
        ------
        OSError
            It cannot be written; an older file is left as it was.
        """
        facts = {
            "version": _VERSION,
            "centre": list(self.centre),
            "beam": vars(self.beam),
            "n_effective": self.n_effective,
            "ref_freq": self.ref_freq,
        }
        arrays: dict[str, Any] = self.draws.to_arrays() | {"number": self.draws.number}
        if self.log_posterior is not None:
            arrays["log_posterior"] = self.log_posterior
        buffer = io.BytesIO()
        np.savez_compressed(buffer, facts=np.array(json.dumps(facts)), **arrays)
        write_atomic(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PopulationResult:
        """Read what `save` wrote; of a folder, the file that `write` put there.

        Raises
        ------
        DataError
            No such file, or not one of draws of a population.
        """
        place = Path(path)
        place = place / FILE if place.is_dir() else place
        arrays: dict[str, NDArray[Any]] = read_npz(place, _WHAT)
        with reading(place, _WHAT):
            facts = json.loads(str(arrays["facts"]))
            log_posterior = arrays.get("log_posterior")
            return cls(
                draws=SourceDraws.from_arrays(arrays),
                centre=(float(facts["centre"][0]), float(facts["centre"][1])),
                beam=RestoringBeam(**{key: float(facts["beam"][key]) for key in ("major", "minor", "pa")}),
                n_effective=float(facts["n_effective"]),
                log_posterior=None if log_posterior is None else log_posterior.astype(np.float64),
                ref_freq=None if facts["ref_freq"] is None else float(facts["ref_freq"]),
            )
