"""Sources found in a dirty image, and the result of a search for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.partition_fit import EFFECT
from biro.display.formatting import (
    ANGLES,
    FLUXES,
    Tabular,
    Unit,
    digits_after_point,
    plain,
    unit_for,
)
from biro.models import Order, Uniform
from biro.models.bound.positions.bearing import bearing
from biro.models.quantities.units import ANGLE, FLUX, NUMBER, factor
from biro.source_finding.fitting.component import Component, Kind, n_param

if TYPE_CHECKING:
    from biro.imaging.dirty_image import DirtyImage
    from biro.models import Population, SkyModel

Array = NDArray[np.float64]
SIGNIFICANT = 10.0
"""2 ln of the likelihood ratio from which on errors of gains are named: 3 sigma of one parameter."""
WORST = 3
"""Antennas that a line about gains names."""
WORTH = 1.1
"""Ratio of residual rms with and without errors of gains from which it is worth to correct these."""


@dataclass(frozen=True)
class FoundSource:
    """A point or a Gaussian that was fitted to the visibilities of Stokes I.

    Attributes
    ----------
    name : str
    kind : "point", "circle" or "ellipse"
    east, north : float
        Direction cosines from the phase centre.
    flux, flux_err : float, Jy
        The error is that for noise as large, and as coherent, as the residuals.
    position_err : float, rad
        Of east and north together.
    emaj, emin, pa : float, rad
        FWHM, and position angle from the north at the source; 0 for a point.
    spectral_index, spectral_index_err : float
        0 where the data cover too narrow a band to fit one.
    east_err, north_err, emaj_err, emin_err, pa_err : float, rad
        0 for what the kind of source has not; of the position angle at most pi/2.
    """

    name: str
    kind: Kind
    east: float
    north: float
    flux: float
    flux_err: float
    position_err: float
    emaj: float = 0.0
    emin: float = 0.0
    pa: float = 0.0
    spectral_index: float = 0.0
    spectral_index_err: float = 0.0
    east_err: float = 0.0
    north_err: float = 0.0
    emaj_err: float = 0.0
    emin_err: float = 0.0
    pa_err: float = 0.0

    @property
    def varied(self) -> tuple[str, ...]:
        """Names of what was fitted, as in a model file; all else is fixed."""
        shape = {"point": (), "circle": ("fwhm",), "ellipse": ("emaj", "ratio", "pa")}[self.kind]
        return ("I", "east", "north", *shape, *(("spectral_index",) if self.spectral_index_err else ()))


@dataclass(frozen=True, eq=False, repr=False)
class FoundSources(Tabular):
    """The result of `biro.find_sources`.

    Attributes
    ----------
    sources : tuple of FoundSource
        Brightest first.
    sky : SkyModel
        The sources with priors around them, for `biro fit`.
    residual : DirtyImage
        Dirty image of the data minus these sources.
    noise_factor : float
        Rms of the residual visibilities over what the weights say.
    reason : str
        Why the search ended.
    reduced_chi2 : float
        chi2 / 2N of Stokes I, with the weights as they are.
    error_factor : float
        Root mean square of the factors by which the errors were multiplied, because residuals are correlated
        beyond errors of gains. A fit of `sky` states it by the same definition
        (`biro.diagnosis.correlated_errors`).
    smearing : tuple of str
        Whether the sources were fitted as averages over integrations and channels, and why.
    gain_error : float
        Rms of the relative errors of the antennas' gains that the residuals show; 0 for none.
    without_gains : float
        Noise factor of the residuals without these errors; NaN where it was not measured.
    antennas : dict of (float, float, float)
        By the name of an antenna, what is wrong with its gain: rms of the relative error of the amplitude,
        its mean over all times, and rms of the phase error, rad. Empty where a line about what does not fit
        names the gains.
    thermal : float
        Thermal noise over the noise from the weights, from differences of neighbouring residuals as in a fit
        (`biro.diagnosis.whiteness`); NaN where there are none.
    is_bound : bool
        Whether the thermal noise is an upper limit, because residuals change between neighbouring times.
    hands : str
        "RR and LL", or whatever hands Stokes I was averaged of; "" where it is stored as such.
    misfit : tuple of str
        What is wrong with weights or model.
    population : Population or None
        Priors with the scales of what was found, of sources in any number.
    gain_evidence : float
        2 ln of the likelihood ratio for gains with errors against gains without.
    n_outlier : int
        Visibilities, of a row and channel each, that search and fit leave out because no source explains
        them.
    outliers : str
        What they are, and what to do before a fit; "" where there are none.
    flag_command : str
        The command that flags them; "" where there are none, where they are many, or where the data are no
        single data set that can be flagged. The noise of `sky` has outliers (Student's t) then.
    exchangeable : tuple of (str, str)
        Pairs of close sources that a fit of `sky` may exchange: orders would leave too little of the prior.
    stopped : str
        Why the search ended before its time; "" where it did not.
    fault : Exception or None
        The error that ended it.
    """

    sources: tuple[FoundSource, ...]
    sky: SkyModel
    residual: DirtyImage
    noise_factor: float
    reason: str
    reduced_chi2: float = float("nan")
    error_factor: float = 1.0
    smearing: tuple[str, ...] = ()
    gain_error: float = 0.0
    without_gains: float = float("nan")
    antennas: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    thermal: float = float("nan")
    is_bound: bool = False
    hands: str = ""
    misfit: tuple[str, ...] = ()
    population: Population | None = None
    gain_evidence: float = 0.0
    n_outlier: int = 0
    outliers: str = ""
    flag_command: str = ""
    exchangeable: tuple[tuple[str, str], ...] = ()
    stopped: str = ""
    fault: Exception | None = None

    @property
    def coherence(self) -> float:
        """Mean variance of parameters over that with independent residuals, the square of `error_factor`."""
        return self.error_factor**2

    @property
    def start(self) -> dict[str, float]:
        """The fitted values by name, in the units of `sky`: `biro.sample(likelihood, start=found.start)`."""
        values = {}
        for found, made in zip(self.sources, self.sky.sources, strict=True):
            angles = {"east": found.east, "north": found.north, "pa": found.pa}
            angles |= {"fwhm": found.emaj} if found.kind == "circle" else {"emaj": found.emaj}
            for key, value, dimension in (
                *((key, value, ANGLE) for key, value in angles.items()),
                ("I", found.flux, FLUX),
                ("ratio", found.emin / found.emaj if found.emaj else 0.0, NUMBER),
            ):
                quantity = getattr(made, key, None)
                quantity = quantity[0] if isinstance(quantity, tuple) else quantity
                if quantity is not None:
                    values[f"{found.name}.{key}"] = _inside(
                        quantity, value / factor(quantity.unit, dimension)
                    )
            if found.spectral_index_err:
                values[f"{found.name}.spectral_index"] = found.spectral_index
        return values

    def __repr__(self) -> str:
        return f"<FoundSources: {len(self.sources)} sources; print() shows the table>"

    def cells(self) -> list[list[str]]:
        """Header and rows as text: fluxes in one unit, and places and sizes in one."""
        flux = unit_for((source.flux for source in self.sources), FLUXES)
        angle = unit_for((x for s in self.sources for x in (s.east, s.north, s.emaj)), ANGLES)
        angles = [f"{of}, {angle.name}" for of in ("east", "north", "major", "minor")]
        with_index = any(source.spectral_index_err for source in self.sources)
        rows = [_cells(source, flux, angle, with_index=with_index) for source in self.sources]
        head = ["source", "type", f"I, {flux.name}", *angles, "PA, deg", *["spectral index"] * with_index]
        return [[*head, "fitted"], *rows]

    def warnings(self) -> list[str]:
        """Why the search ended before its time."""
        return [f"NOT FINISHED: {self.stopped}. This is the best model so far"] if self.stopped else []

    def notes(self) -> list[str]:
        """Lines below the table; the last ones are about what does not fit."""
        lines = [self._size_line(), f"search ended: {self.reason}"]
        if self.gain_error > 0.0 and self.gain_evidence > SIGNIFICANT:
            lines.append(self._gain_line())
        if self.error_factor > EFFECT:
            lines.append(
                f"the errors above are already multiplied, by {plain(self.error_factor)} on average, because "
                "residuals are correlated beyond gain errors (closure errors, or structure that is not found)"
            )
        fixed = "" if any(s.spectral_index_err for s in self.sources) else ". Spectral indices are fixed at 0"
        lines.append(f"fitted: free parameters, of all sources together{fixed}")
        if orders := [" > ".join(each.order) for each in self.sky.constraints if isinstance(each, Order)]:
            lines.append(
                f"order of close sources in the model, without which a fit could exchange them: "
                f"{', '.join(orders)}"
            )
        if self.exchangeable:
            pairs = ", ".join(" and ".join(pair) for pair in self.exchangeable)
            lines.append(
                "the model has no order of these close sources, because so many orders leave too little of "
                f"the prior: a fit may exchange {pairs}"
            )
        return [*lines, *self.smearing, *filter(None, [self.outliers]), *self.misfit]

    def _size_line(self) -> str:
        """How large residuals are, and what of: a fit of other correlations has another chi2."""
        factor = self.noise_factor
        line = f"chi2/dof {factor**2:.4g}: residual rms {factor:.4g} times the noise from the weights"
        if np.isfinite(self.thermal) and self.thermal > 0.0:
            ratio = self.noise_factor / self.thermal
            line += f", {'at least ' * self.is_bound}{ratio:.3g} times the thermal noise"
        if self.hands:
            line += (
                f". This is of the weighted mean of {self.hands} (pseudoI). A fit of both, or of their plain "
                "mean (--stokes I), has another chi2/dof where the weights do not describe the noise"
            )
        return line

    def _gain_line(self) -> str:
        """How large errors of gains are, where, and what they explain."""
        percent, worst = f"{100.0 * self.gain_error:.2g} % rms", ""
        ranked = sorted(self.antennas.items(), key=lambda item: -np.hypot(item[1][0], item[1][2]))
        if ranked:
            named = "; ".join(
                f"{name} amplitude offset {100.0 * mean:+.2g} %, amplitude rms {100.0 * rms:.2g} %, phase "
                f"rms {np.rad2deg(phase):.2g} deg"
                for name, (rms, mean, phase) in ranked[:WORST]
            )
            worst = f", largest {named}"
        gained = self.noise_factor / self.without_gains if self.without_gains > 0.0 else 1.0
        remedy = ". To correct them, use biro solve, or biro fit --gains marginalise" * (gained > WORTH)
        return (
            f"GAIN ERRORS: {percent}{worst}. With corrected gains the residual rms would be "
            f"{self.without_gains:.4g} instead of {self.noise_factor:.4g} times the noise of the weights. "
            f"The errors of the sources above allow for them{remedy}"
        )

    def with_population(self) -> SkyModel:
        """`sky` with a population in place of its sources, for `biro.fit_population`.

        Its priors have the scales of what was found (`biro.source_finding.proposed_model`).
        """
        return replace(self.sky, sources=(), constraints=(), populations=(self.population,))

    def to_toml(self, *, population: bool = False) -> str:
        """The model file, with the fitted sources as comments; that of `with_population` if asked for."""
        head = [f"# {line}" for line in str(self).splitlines()]
        return "\n".join([*head, "", (self.with_population() if population else self.sky).to_toml()])

    def to_dict(self) -> dict[str, object]:
        """Figures for JSON: angles in rad, fluxes in Jy."""
        return {
            "sources": [vars(source) | {"varied": list(source.varied)} for source in self.sources],
            "noise_factor": self.noise_factor,
            "reduced_chi2": self.reduced_chi2,
            "error_factor": self.error_factor,
            "gain_error": self.gain_error,
            "antennas": {name: list(errors) for name, errors in self.antennas.items()},
            "thermal_noise": self.thermal,
            "misfit": list(self.misfit),
            "n_outlier": self.n_outlier,
            "flag_command": self.flag_command,
            "stopped": self.stopped,
            "smearing": list(self.smearing),
            "rms": self.residual.rms,
            "peak": vars(self.residual.peak),
            "reason": self.reason,
        }


def described(
    components: Sequence[Component], covariance: Array, dec0: float, *, spectral: bool
) -> tuple[FoundSource, ...]:
    """Components as sources with names, the brightest first.

    Parameters
    ----------
    components : sequence of Component
    covariance : float64 (n_param, n_param)
        Of their parameters, one component after the other.
    dec0 : float, rad
        Declination of the phase centre, from whose north components count their angles; sources count them
        from their own.
    spectral : bool
        Whether spectral indices were fitted.
    """
    sources, i = [], 0
    for component in components:
        n = n_param(component, spectral)
        own, i = covariance[i : i + n, i : i + n], i + n
        errors = np.sqrt(np.maximum(np.diag(own), 0.0)).tolist()
        emaj, emin, pa = component.shape
        if component.kind == "ellipse":
            pa = (pa - float(bearing(np.array(component.lm), dec0))) % np.pi
        slopes = component.shape_slopes()
        shape = np.sqrt(
            np.maximum(np.diag(slopes @ own[n - slopes.shape[1] :, n - slopes.shape[1] :] @ slopes.T), 0.0)
        )
        sources.append(
            FoundSource(
                name="",
                kind=component.kind,
                east=component.lm[0],
                north=component.lm[1],
                flux=component.flux,
                flux_err=errors[0],
                position_err=float(np.hypot(errors[1], errors[2])),
                emaj=emaj,
                emin=emin,
                pa=pa,
                spectral_index=component.index,
                spectral_index_err=errors[3] if spectral else 0.0,
                east_err=errors[1],
                north_err=errors[2],
                emaj_err=float(shape[0]),
                emin_err=float(shape[1]),
                pa_err=min(float(shape[2]), np.pi / 2),
            )
        )
    sources.sort(key=lambda source: -source.flux)
    return tuple(replace(source, name=f"s{i}") for i, source in enumerate(sources, start=1))


def _inside(prior: Uniform, value: float) -> float:
    """A value within its prior, whose ends are rounded, and an angle of which may differ by half a turn."""
    if prior.unit == "deg" and not prior.low <= value <= prior.high:
        value += 180.0 * np.sign(prior.low - value)
    step = 1e-6 * (prior.high - prior.low)
    return float(np.clip(value, prior.low + step, prior.high - step))


def _cells(source: FoundSource, flux: Unit, angle: Unit, *, with_index: bool) -> list[str]:
    """A row of the table: each value with its error."""
    has_axes = {"point": (False, False), "circle": (True, False), "ellipse": (True, True)}[source.kind]
    axes = ((source.emaj, source.emaj_err), (source.emin, source.emin_err))
    cells = [source.name, source.kind, _with_error(source.flux, source.flux_err, flux.size)]
    places = ((source.east, source.east_err), (source.north, source.north_err))
    cells += [_with_error(*each, angle.size) for each in places]
    cells += [_with_error(*axis, angle.size) if has else "" for axis, has in zip(axes, has_axes, strict=True)]
    cells.append(_with_error(source.pa, source.pa_err, np.deg2rad(1.0)) if source.kind == "ellipse" else "")
    if with_index:
        cells.append(_with_error(source.spectral_index, source.spectral_index_err))
    return [*cells, " ".join(source.varied)]


def _with_error(value: float, error: float, unit: float = 1.0) -> str:
    """A value and its error in a unit, with two figures of the error: "1.234 +- 0.056"."""
    digits = min(digits_after_point(error / unit), 9)
    return f"{value / unit:.{digits}f} +- {error / unit:.{digits}f}"
