"""Find sources in a dirty image, fit them to the visibilities, and propose a sky model with priors."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.images.imager import Imager, ImagingOptions
from biro.likelihood.noise_range import with_noise_range
from biro.observation.observation import Observation
from biro.progress import bar
from biro.simulation.prediction import predict
from biro.source_finding.found_sources import FoundSource, FoundSources
from biro.source_finding.proposed_model import propose
from biro.source_finding.source_fit import Component, Fit, SourceFit

log = logging.getLogger(__name__)

MAX_CANDIDATES, CANDIDATE_HEIGHT = 12, 0.8
"""Number of peaks that are tried for one source, and their height at least, relative to the highest peak.

With few baselines a sidelobe may be higher than the source itself.
"""
RIM = 0.02
"""Fraction of the image, at each side, in which no source is looked for."""


def find_sources(
    observation: Observation,
    *,
    threshold: float = 5.0,
    max_sources: int = 10,
    **options: Unpack[ImagingOptions],
) -> FoundSources:
    """Find the sources of an observation one after the other, and propose a model with priors for `biro fit`.

    A point and an elliptical Gaussian are fitted to the visibilities at the highest peak of the dirty image
    of the residuals; then all sources are fitted together. Both a Gaussian in place of a point and a further
    source must lower chi2/s^2 by more than n ln(2N) for their n parameters (the Bayesian information
    criterion, for N complex visibilities and the noise factor s of the fit). The search ends where the
    highest peak is below `threshold` times the robust rms of the image, or is lower than the deepest hole is
    deep, which errors of calibration make and sources do not; or where a further source does not lower chi2
    enough.

    Parameters
    ----------
    observation : Observation
        Of one phase centre. Stokes I is fitted, positive sources only, without beam.
    threshold : float
        Height of the lowest peak, in robust rms of the residual image.
    max_sources : int
        1 to 100.
    **options
        Fields of `biro.images.imager.Imaging` except stokes: weighting, robust, cell, n_pixel, backend, ...

    Returns
    -------
    FoundSources

    Raises
    ------
    InputError
        As `biro.image`; or nothing is above the threshold.
    """
    if not threshold > 0.0:
        raise InputError(f"threshold must be above 0, got {threshold}")
    if not 1 <= max_sources <= 100:
        raise InputError(f"max_sources must be 1 to 100, got {max_sources}")
    search = _Search(observation, options)
    reason = ""
    with bar("finding", "sources") as shown:
        while not reason:
            reason = search.step(threshold, max_sources)
            shown.update(not reason)
    if not search.components:
        raise InputError(f"no source found: {reason}")
    return search.result(reason)


class _Search:
    """The sources that were found so far, and the dirty image of the data minus these sources."""

    def __init__(self, observation: Observation, options: ImagingOptions) -> None:
        if "stokes" in options:
            raise InputError("sources are looked for in Stokes I; leave stokes out")
        self._observation, self._backend = observation, options.get("backend", "auto")
        self._centre = observation.partitions[0].phase_centre
        self._imager = Imager(observation, **options)
        beam, cell = self._imager.beam, self._imager.cell
        self._beam_size = beam.minor if beam is not None else 5.0 * cell
        half = 0.5 * self._imager.n_pixel * cell
        self._data = SourceFit(observation, min(1.5 * half, 0.99), self._beam_size, self._backend)
        self.components: tuple[Component, ...] = ()
        self._fit = Fit((), self._data.chi2(()), np.zeros((0, 0)))
        self._residual = self._imager.image()

    def step(self, threshold: float, max_sources: int) -> str:
        """Add the source at the highest peak of the residual image.

        Returns
        -------
        str
            Why no source is added; "" where one is.
        """
        if len(self.components) >= max_sources:
            return f"{max_sources} sources are as many as were asked for"
        high, low, rms = self._extremes()
        peak = f"the highest peak left, {high:.4g} Jy/beam, is"
        if high <= 0.0:
            return f"{peak} not above 0"
        if high < threshold * rms:
            return f"{peak} {high / rms:.3g} times the rms of the image"
        if high < -low:
            return f"{peak} less than the deepest hole, {low:.4g}"
        return "" if self._add() else f"{peak} no source that the data ask for"

    def result(self, reason: str) -> FoundSources:
        """The sources, and the model that they propose."""
        sources = self._sources()
        sky = propose(sources, self._centre, self._data.ref_freq, beam_size=self._beam_size)
        sky = with_noise_range(sky, self._observation.partitions)
        return FoundSources(sources, sky, self._residual, float(np.sqrt(self._variance(self._fit))), reason)

    def _extremes(self) -> tuple[float, float, float]:
        """Highest peak and deepest hole of the residual image, and its robust rms, Jy/beam."""
        return float(self._inner().max()), float(self._inner().min()), self._residual.rms

    def _add(self) -> bool:
        """Add a source if it lowers chi2 enough, and image the residuals again."""
        joint = self._simplified(self._data.fit([*self.components, *self._newest().components]))
        n_new = len(joint.covariance) - len(self._fit.covariance)
        is_better = self._is_worth_it(self._fit.chi2, joint.chi2, n_new)
        if not is_better or min(component.flux for component in joint.components) <= 0:
            return False
        self.components, self._fit = joint.components, joint
        sky = propose(self._sources(), self._centre, self._data.ref_freq, free=False)
        model = list(predict(self._observation, sky, backend=self._backend))
        self._residual = self._imager.image("residual", model)
        high, low, rms = self._extremes()
        log.info(
            "%d sources: chi2 %.6g; peak left %.4g, hole %.4g, rms %.4g Jy/beam",
            *(len(self.components), joint.chi2, high, low, rms),
        )
        return True

    def _inner(self) -> NDArray[np.float64]:
        """The residual image without its rim."""
        rim = max(1, round(RIM * self._imager.n_pixel))
        return self._residual.dirty[0, rim:-rim, rim:-rim]

    def _candidates(self) -> list[tuple[float, float]]:
        """Directions (l, m) of the highest local maxima of the residual image."""
        from scipy.ndimage import maximum_filter

        inner, n = self._inner(), self._imager.n_pixel
        tops = (inner == maximum_filter(inner, size=5)) & (inner >= CANDIDATE_HEIGHT * inner.max())
        y, x = np.nonzero(tops)
        order = np.argsort(-inner[y, x])[:MAX_CANDIDATES]
        rim = (n - inner.shape[0]) // 2
        return [
            (
                float((n // 2 - rim - x[i]) * self._imager.cell),
                float((y[i] + rim - n // 2) * self._imager.cell),
            )
            for i in order
        ]

    def _newest(self) -> Fit:
        """A point or a Gaussian at the candidate that fits best, with the other sources held fixed."""
        high = max(self._extremes()[0], 1e-12)
        points = [self._data.fit([Component(place, high)], self.components) for place in self._candidates()]
        point = best = min(points, key=lambda fit: fit.chi2)
        widest = 0.5 * self._imager.n_pixel * self._imager.cell
        for factor in (0.3, 1.0, 3.0):
            root = factor * self._beam_size / 2.3548
            wide = replace(point.components[0], root=(root, 0.0, root))
            trial = self._data.fit([wide], self.components)
            if trial.chi2 < best.chi2 and trial.components[0].shape[0] < widest:
                best = trial
        return best if self._is_worth_it(point.chi2, best.chi2, 3) else point

    def _simplified(self, joint: Fit) -> Fit:
        """The joint fit with points in place of Gaussians that do not lower chi2 enough."""
        for i, component in enumerate(joint.components):
            if component.root is None:
                continue
            fewer = [*joint.components[:i], replace(component, root=None), *joint.components[i + 1 :]]
            trial = self._data.fit(fewer)
            if not self._is_worth_it(trial.chi2, joint.chi2, 3):
                joint = trial
        return joint

    def _is_worth_it(self, before: float, after: float, n_param: int) -> bool:
        """Whether chi2 falls by more than the Bayesian information criterion asks for n_param parameters."""
        n = 2 * self._data.n_vis
        return n * np.log(before / after) > n_param * np.log(n) if after > 0.0 else before > 0.0

    def _variance(self, fit: Fit) -> float:
        """Reduced chi2: the variance of the noise, relative to what the weights say."""
        return fit.chi2 / max(1, 2 * self._data.n_vis - len(fit.covariance))

    def _sources(self) -> tuple[FoundSource, ...]:
        """Brightest first, with formal errors."""
        sigma = np.sqrt(self._variance(self._fit) * np.maximum(np.diag(self._fit.covariance), 0.0))
        sources, i = [], 0
        for component in self.components:
            n = len(component.vector(self._data.spectral))
            errors, i = sigma[i : i + n], i + n
            emaj, emin, pa = component.shape
            sources.append(
                FoundSource(
                    name="",
                    kind="gaussian" if component.root else "point",
                    east=component.lm[0],
                    north=component.lm[1],
                    flux=component.flux,
                    flux_err=float(errors[0]),
                    position_err=float(np.hypot(errors[1], errors[2])),
                    emaj=emaj,
                    emin=emin,
                    pa=pa,
                    spectral_index=component.index,
                    spectral_index_err=float(errors[3]) if self._data.spectral else 0.0,
                )
            )
        sources.sort(key=lambda source: -source.flux)
        return tuple(replace(source, name=f"s{i}") for i, source in enumerate(sources, start=1))
