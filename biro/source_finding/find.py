"""Sources by themselves: peaks of a dirty image, fitted in the visibilities, as a model with priors."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.formatting import angle_text
from biro.images.imager import Imager
from biro.observation.observation import Observation
from biro.simulation.prediction import predict
from biro.source_finding.proposed_model import propose
from biro.source_finding.source_fit import Component, Fit, SourceFit
from rime_kernels.device import Backend

if TYPE_CHECKING:
    from biro.images.dirty_image import DirtyImage
    from biro.models import SkyModel

log = logging.getLogger(__name__)

CANDIDATES, NEARLY = 12, 0.8
"""Peaks tried for one source, of at least this much of the highest: few baselines have high sidelobes."""
RIM = 0.02
"""Of the image, at each side, where no source is looked for."""


@dataclass(frozen=True)
class FoundSource:
    """A source, as fitted.

    Attributes
    ----------
    name : str
    kind : "point" or "gaussian"
    east, north : float
        Direction cosines from the phase centre.
    flux, flux_err : float, Jy
        Errors are formal ones, of noise as large as the residuals.
    position_err : float, rad
    emaj, emin, pa : float, rad
        FWHM and position angle; 0 for a point.
    spectral_index, spectral_index_err : float
        0 where the data are too narrow to ask.
    """

    name: str
    kind: str
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

    def __str__(self) -> str:
        place = f"east {_signed(self.east)}, north {_signed(self.north)}"
        text = f"{self.name:<4} {self.kind:<8} {self.flux:.5g} +- {self.flux_err:.2g} Jy at {place}"
        if self.kind == "gaussian":
            size = (
                f"{angle_text(self.emaj)} x {angle_text(self.emin)}" if self.emin else angle_text(self.emaj)
            )
            text += f", {size}, PA {np.rad2deg(self.pa):.4g} deg"
        if self.spectral_index_err:
            text += f", spectral index {self.spectral_index:.3g} +- {self.spectral_index_err:.2g}"
        return text


@dataclass(frozen=True, eq=False)
class Found:
    """What `biro.find_sources` found.

    Attributes
    ----------
    sources : tuple of FoundSource
        Brightest first.
    sky : SkyModel
        The sources with priors around them, for `biro fit`.
    residual : DirtyImage
        What they leave.
    noise_factor : float
        Rms of the residual visibilities over what the weights say.
    reason : str
        Why no more were looked for.
    """

    sources: tuple[FoundSource, ...]
    sky: SkyModel
    residual: DirtyImage
    noise_factor: float
    reason: str

    def __str__(self) -> str:
        lines = [str(source) for source in self.sources]
        return "\n".join([*lines, f"noise factor {self.noise_factor:.4g}; {self.reason}"])

    def to_toml(self) -> str:
        """The model file, with what was found as comments."""
        head = [f"# {line}" for line in str(self).splitlines()]
        return "\n".join([*head, "", self.sky.to_toml()])

    def to_dict(self) -> dict[str, Any]:
        """Figures for JSON: angles in rad, fluxes in Jy."""
        return {
            "sources": [vars(source) for source in self.sources],
            "noise_factor": self.noise_factor,
            "rms": self.residual.rms,
            "peak": vars(self.residual.peak),
            "reason": self.reason,
        }


def find_sources(
    observation: Observation,
    *,
    threshold: float = 5.0,
    max_sources: int = 10,
    backend: Backend = "auto",
    **options: Any,
) -> Found:
    """Sources of an observation, one after the other, and a model with priors for `biro fit`.

    The highest peak of the dirty image of what is left is fitted to the visibilities as a point and as an
    elliptical Gaussian; then all sources together. Both a Gaussian in place of a point and a further
    source must lower chi2/s^2 by more than n ln(2N) for their n parameters (the Bayesian information
    criterion; N complex visibilities, s the noise factor of the fit). It ends where the highest peak is below
    `threshold` times the robust rms of the image, or lower than the deepest hole is deep, which errors of
    calibration make and sources do not; or where a source does not pay.

    Parameters
    ----------
    observation : Observation
        Of one phase centre. Stokes I is fitted, positive sources only, without beam.
    threshold : float
    max_sources : int
    backend : "auto", "cpu" or "cuda"
    **options
        Any of `biro.images.imager.Imaging`, but stokes.

    Returns
    -------
    Found

    Raises
    ------
    InputError
        As `biro.image`; or nothing is above the threshold.
    """
    if not threshold > 0.0:
        raise InputError(f"threshold must be above 0, got {threshold}")
    if not 1 <= max_sources <= 100:
        raise InputError(f"max_sources must be 1 to 100, got {max_sources}")
    search = _Search(observation, backend, options)
    reason = ""
    while len(search.components) < max_sources:
        high, low, rms = search.extremes()
        reason = f"the highest peak left, {high:.4g} Jy/beam, is "
        if high <= 0.0:
            reason += "not above 0"
            break
        if high < threshold * rms:
            reason += f"{high / rms:.3g} times the rms of the image"
            break
        if high < -low:
            reason += f"less than the deepest hole, {low:.4g}"
            break
        if not search.add():
            reason += "no source that the data ask for"
            break
        reason = f"{max_sources} sources are as many as were asked for"
    if not search.components:
        raise InputError(f"no source found: {reason}")
    return search.found(reason)


class _Search:
    """The sources so far, and what they leave."""

    def __init__(self, observation: Observation, backend: Backend, options: dict[str, Any]) -> None:
        if "stokes" in options:
            raise InputError("sources are looked for in Stokes I; leave stokes out")
        self._observation, self._backend = observation, backend
        self._centre = observation.partitions[0].phase_centre
        self._imager = Imager(observation, backend=backend, **options)
        beam, cell = self._imager.beam, self._imager.cell
        self._size = beam.minor if beam is not None else 5.0 * cell
        half = 0.5 * self._imager.n_pixel * cell
        self._data = SourceFit(observation, min(1.5 * half, 0.99), self._size, backend)
        self.components: tuple[Component, ...] = ()
        self.fit = Fit((), self._data.chi2(()), np.zeros((0, 0)))
        self._image = self._imager.image()

    def extremes(self) -> tuple[float, float, float]:
        """Highest peak and deepest hole of what is left, and its robust rms, Jy/beam."""
        return float(self._inner().max()), float(self._inner().min()), self._image.rms

    def add(self) -> bool:
        """One more source, where it pays; the image of what is left is made anew."""
        joint = self._simplified(self._data.fit([*self.components, *self._newest().components]))
        n_new = len(joint.covariance) - len(self.fit.covariance)
        if not self._pays(self.fit.chi2, joint.chi2, n_new) or min(c.flux for c in joint.components) <= 0:
            return False
        self.components, self.fit = joint.components, joint
        sky = propose(self._sources(), self._centre, self._data.ref_freq, free=False)
        model = list(predict(self._observation, sky, backend=self._backend))
        self._image = self._imager.image("residual", model)
        high, low, rms = self.extremes()
        words = "%d sources: chi2 %.6g; peak left %.4g, hole %.4g, rms %.4g Jy/beam"
        log.info(words, len(self.components), joint.chi2, high, low, rms)
        return True

    def found(self, reason: str) -> Found:
        sources = self._sources()
        sky = propose(sources, self._centre, self._data.ref_freq, size=self._size)
        return Found(sources, sky, self._image, float(np.sqrt(self._variance(self.fit))), reason)

    def _inner(self) -> NDArray[np.float64]:
        rim = max(1, round(RIM * self._imager.n_pixel))
        return self._image.dirty[0, rim:-rim, rim:-rim]

    def _candidates(self) -> list[tuple[float, float]]:
        """(l, m) of the highest local maxima."""
        from scipy.ndimage import maximum_filter

        inner, n = self._inner(), self._imager.n_pixel
        tops = (inner == maximum_filter(inner, size=5)) & (inner >= NEARLY * inner.max())
        y, x = np.nonzero(tops)
        order = np.argsort(-inner[y, x])[:CANDIDATES]
        rim = (n - inner.shape[0]) // 2
        return [
            (
                float((n // 2 - rim - x[i]) * self._imager.cell),
                float((y[i] + rim - n // 2) * self._imager.cell),
            )
            for i in order
        ]

    def _newest(self) -> Fit:
        """A point or a Gaussian at the peak that fits best, with the other sources held."""
        high = max(self.extremes()[0], 1e-12)
        points = [self._data.fit([Component(place, high)], self.components) for place in self._candidates()]
        point = best = min(points, key=lambda fit: fit.chi2)
        widest = 0.5 * self._imager.n_pixel * self._imager.cell
        for factor in (0.3, 1.0, 3.0):
            root = factor * self._size / 2.3548
            wide = replace(point.components[0], root=(root, 0.0, root))
            trial = self._data.fit([wide], self.components)
            if trial.chi2 < best.chi2 and trial.components[0].shape[0] < widest:
                best = trial
        return best if self._pays(point.chi2, best.chi2, 3) else point

    def _simplified(self, joint: Fit) -> Fit:
        """Gaussians that are not needed among the others become points."""
        for i, component in enumerate(joint.components):
            if component.root is None:
                continue
            fewer = [*joint.components[:i], replace(component, root=None), *joint.components[i + 1 :]]
            trial = self._data.fit(fewer)
            if not self._pays(trial.chi2, joint.chi2, 3):
                joint = trial
        return joint

    def _pays(self, before: float, after: float, n_param: int) -> bool:
        n = 2 * self._data.n_vis
        return n * np.log(before / after) > n_param * np.log(n) if after > 0.0 else before > 0.0

    def _variance(self, fit: Fit) -> float:
        return fit.chi2 / max(1, 2 * self._data.n_vis - len(fit.covariance))

    def _sources(self) -> tuple[FoundSource, ...]:
        """Brightest first, with formal errors."""
        sigma = np.sqrt(self._variance(self.fit) * np.maximum(np.diag(self.fit.covariance), 0.0))
        made, i = [], 0
        for component in self.components:
            n = len(component.vector(self._data.spectral))
            errors, i = sigma[i : i + n], i + n
            emaj, emin, pa = component.shape
            index_err = float(errors[3]) if self._data.spectral else 0.0
            made.append(
                FoundSource(
                    *("", "gaussian" if component.root else "point", *component.lm, component.flux),
                    *(float(errors[0]), float(np.hypot(errors[1], errors[2])), emaj, emin, pa),
                    *(component.index, index_err),
                )
            )
        made.sort(key=lambda source: -source.flux)
        return tuple(replace(source, name=f"s{i}") for i, source in enumerate(made, start=1))


def _signed(angle: float) -> str:
    return ("-" if angle < 0 else "") + (angle_text(abs(angle)) if angle else "0")
