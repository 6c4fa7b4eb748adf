"""The search for sources: which component is added, changed or left out next."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.images.imager import Imager, ImagingOptions
from biro.models import SkyModel
from biro.observation.observation import Observation
from biro.simulation.prediction import predict
from biro.source_finding.beam_factors import SeenThrough, seen_through
from biro.source_finding.coherence import Coherence, Evidence, significance
from biro.source_finding.component import Component, Kind, n_param
from biro.source_finding.found_sources import FoundSource
from biro.source_finding.peaks import highest, peaks
from biro.source_finding.proposed_model import propose
from biro.source_finding.source_fit import Fit, SourceFit
from biro.source_finding.visibility_data import VisibilityData

Vis = NDArray[np.complex128]
log = logging.getLogger(__name__)
SIZES = (0.3, 1.0, 3.0, 10.0)
"""FWHM that fits of Gaussians begin with, in beams."""
LEAST_SEEN = 0.05
"""Fraction of a Gaussian's flux that the shortest baselines see at least."""
PATIENCE = 5
"""Steps after which the search ends where none of them is established."""
MAX_JOINT = 4
"""Changes of the model that are tried in fits of all components, the most promising first, before none is."""


@dataclass(frozen=True)
class _Change:
    """A change of the components that fits well while the others are held.

    Attributes
    ----------
    components : tuple of Component
        All of them, changed.
    n_new : int
        How many of these are new.
    surplus : float
        By how much the evidence is above what is needed.
    """

    components: tuple[Component, ...]
    n_new: int
    surplus: float


class Search:
    """The sources that were found so far, and the dirty image of the data minus these sources.

    Parameters
    ----------
    observation : Observation
    **options
        Of the image.
    instrument : SkyModel, optional
        Through whose beam, pointing and feeds sources are seen; fixed values.
    beams : SeenThrough, optional
        In place of it, where the beams are known.

    Attributes
    ----------
    components : tuple of Component
    coherence : float
        How many residuals count as one (`Coherence`).
    residual : DirtyImage
    """

    def __init__(
        self,
        observation: Observation,
        options: ImagingOptions,
        instrument: SkyModel | None = None,
        beams: SeenThrough | None = None,
    ) -> None:
        if "stokes" in options:
            raise InputError("sources are looked for in Stokes I; leave stokes out")
        if any(part.tapered for part in observation.partitions):
            raise InputError("weights are tapered, so that errors would be too small; leave the taper out")
        self._observation, self._backend = observation, options.get("backend", "auto")
        self.centre = observation.partitions[0].phase_centre
        self._imager = Imager(observation, **options)
        beam, cell = self._imager.beam, self._imager.cell
        self.beam_size = beam.minor if beam is not None else 5.0 * cell
        half = 0.5 * self._imager.n_pixel * cell
        extent = min(1.5 * half, 0.99)
        self._instrument = instrument
        if instrument is not None:
            beams = SeenThrough.of(observation, instrument)
        if beams is not None and beams.reach < np.sqrt(2.0) * half:
            log.warning(
                "the beam is known up to %.3g deg from the phase centre, and the image reaches %.3g deg: no "
                "source is looked for beyond the beam", *np.rad2deg([beams.reach, np.sqrt(2.0) * half])
            )  # fmt: skip
        self._extent = extent if beams is None else min(extent, beams.reach)
        self.data = VisibilityData(observation, extent, self._backend, beams)
        # Of a Gaussian, exp(-2 pi^2 sigma^2 u^2) of the flux is seen on a baseline of u wavelengths.
        seen = np.sqrt(4.0 * np.log(2.0) * -np.log(LEAST_SEEN)) / (np.pi * max(self.data.shortest, 1e-9))
        self._fitter = SourceFit(self.data, self._extent, min(half, float(seen)))
        self._coherence_of = Coherence(self.data)
        self._n_beam = (2.0 * half / self.beam_size) ** 2
        self._established = self._fit = Fit(
            (), self.data.chi2([chunk.vis for chunk in self.data.chunks]), np.zeros((0, 0))
        )
        self._n_beyond = 0
        self._take(self._fit)
        self.residual = self._imager.image()

    @property
    def components(self) -> tuple[Component, ...]:
        """The components as they were fitted last."""
        return self._fit.components

    @property
    def reduced_chi2(self) -> float:
        """chi2 / 2N, with the weights as they are."""
        return self._fit.chi2 / max(1, 2 * self.data.n_vis)

    @property
    def variance(self) -> float:
        """Reduced chi2: the variance of the noise, relative to what the weights say."""
        return self._variance_of(self._fit)

    def step(self, threshold: float | None, max_sources: int) -> str:
        """Add the component that the data ask for most, or let one have a shape.

        It is enough here that the data would ask for it if residuals were noise. Whether they do is seen
        when what is next to it has been found, too: until then residuals are structure, and alike.

        Parameters
        ----------
        max_sources : int
            Where there are so many, shapes alone are changed.
        threshold : float or None
            Height of the lowest peak, in robust rms of the residual image, at which a component is added
            whether or not the evidence asks for it. None: the evidence decides.

        Returns
        -------
        str
            Why there is none; "" where something was changed.
        """
        high, rms = highest(self.residual), self.residual.rms
        before, times = self._fit, f"{high / max(rms, 1e-300):.3g} times the rms of the image"
        peak = f"the highest peak left, {high:.4g} Jy/beam,"
        reason = ""
        if high <= 0.0:
            reason = f"{peak} is not above 0"
        elif threshold is not None and high < threshold * rms:
            reason = f"{peak} is {times}"
        elif len(self.components) >= max_sources:
            reason = f"{max_sources} sources are as many as were asked for"
        forced = threshold is not None
        best = self._best_change(with_new=not reason, forced=forced)
        refused = f"{peak} {times}, is no source that the data ask for"
        if best is None:
            return reason or refused
        self._take(best if forced else self._simplified(best, strict=False))
        if self._fit.n_param == before.n_param and not self._fit.chi2 < before.chi2:
            return reason or refused
        if self._goes_back(before):
            return self.step(threshold, max_sources)
        self._image()
        return self._judge(refused, forced=forced)

    def _best_change(self, *, with_new: bool, forced: bool) -> Fit | None:
        """The change that is best when all components are fitted together; None where none is good."""
        changes = sorted(self._changes(with_new=with_new), key=lambda change: -change.surplus)
        best, least = None, 0.0
        for n_new in (1, 0):
            for change in [change for change in changes if change.n_new == n_new][:MAX_JOINT]:
                joint = self._fitted(change.components)
                if joint is None:
                    continue
                surplus = self._surplus(self._fit, joint, n_new, strict=False)
                if forced and n_new and joint.chi2 < self._fit.chi2:
                    surplus = max(surplus, 1e-9)
                if surplus > least:
                    best, least = joint, surplus
                    break
        return best

    def settle(self) -> bool:
        """Go back to what is established, without what it does not need; whether that changes anything."""
        settled = self._simplified(self._established, strict=True) if self._established.components else None
        settled = settled or self._established
        if settled is self._fit:
            return False
        self._take(settled)
        self._image()
        return True

    def _judge(self, reason: str, *, forced: bool) -> str:
        """Establish what there is now if what it leaves says so; after some steps without that, a reason."""
        n_new = max(len(self.components) - len(self._established.components), 0)
        if forced or self._surplus(self._established, self._fit, n_new, strict=True) > 0.0:
            self._established, self._n_beyond = self._fit, 0
            return ""
        self._n_beyond += 1
        return reason if self._n_beyond >= PATIENCE else ""

    def add_circle(self) -> bool:
        """Add a circular Gaussian where it lowers chi2 most, whatever the evidence says.

        Returns
        -------
        bool
            Whether there is such a place.
        """
        for component in sorted(self._points(), key=lambda fit: fit.chi2):
            for circle in self._shaped(component.components[0], ("circle",)):
                joint = self._fitted((*self.components, *circle.components))
                if joint is not None and joint.chi2 < self._fit.chi2:
                    self._take(joint)
                    self._image()
                    return True
        return False

    def at_peak(self, kind: Kind) -> FoundSource | None:
        """The component of this kind that fits best at the highest peak of the data, where there is one."""
        before = self._fit
        point = min(filter(self._is_possible, self._points()), key=lambda fit: fit.chi2, default=None)
        if point is None:
            return None
        fits = [point] if kind == "point" else self._shaped(point.components[0], (kind,))
        if not fits or not fits[0].chi2 < self._fit.chi2:
            return None
        self._take(fits[0])
        return self.at_peak(kind) if self._goes_back(before) else self.sources()[0]

    def sources(self) -> tuple[FoundSource, ...]:
        """Brightest first, with errors for noise as large as the residuals and as coherent."""
        scale = self.variance * self.coherence
        sigma = np.sqrt(scale * np.maximum(np.diag(self._fit.covariance), 0.0))
        sources, i = [], 0
        for component in self.components:
            n = n_param(component, self.data.spectral)
            errors, i = sigma[i : i + n], i + n
            emaj, emin, pa = component.shape
            sources.append(
                FoundSource(
                    name="",
                    kind=component.kind,
                    east=component.lm[0],
                    north=component.lm[1],
                    flux=component.flux,
                    flux_err=float(errors[0]),
                    position_err=float(np.hypot(errors[1], errors[2])),
                    emaj=emaj,
                    emin=emin,
                    pa=pa,
                    spectral_index=component.index,
                    spectral_index_err=float(errors[3]) if self.data.spectral else 0.0,
                )
            )
        sources.sort(key=lambda source: -source.flux)
        return tuple(replace(source, name=f"s{i}") for i, source in enumerate(sources, start=1))

    def _goes_back(self, before: Fit) -> bool:
        """Average models over integrations and channels where the components ask for it.

        Where that is new the components of `before` are fitted again: a source of which averages take a part
        looks like a longer one.
        """
        if not self.data.smear(self.components):
            return False
        is_established = self._established is before
        self._take(self._again(before))
        self._established = self._fit if is_established else self._again(self._established)
        return True

    def _again(self, fit: Fit) -> Fit:
        """A fit of the same components."""
        return self._fitter.fit(fit.components) if fit.components else fit

    def _take(self, fit: Fit) -> None:
        """Make this the fit that changes start from."""
        self._fit = fit
        self._left = self.data.residual(fit.components)
        model = [chunk.vis - left for chunk, left in zip(self.data.chunks, self._left, strict=True)]
        self.coherence = self._coherence_of(self._left, model)

    def _image(self) -> None:
        """Make the image of the residuals."""
        sky = propose(self.sources(), self.centre, self.data.ref_freq, free=False)
        sky = seen_through(sky, self._instrument)
        model = list(predict(self._observation, sky, backend=self._backend))
        self.residual = self._imager.image("residual", model)

    def _points(self) -> list[Fit]:
        """Points at the candidates, with what was found held."""
        within = [point for point in peaks(self.residual) if np.hypot(*point.lm) <= self._extent]
        return [self._fitter.fit([point], self._left) for point in within]

    def _shaped(
        self, point: Component, kinds: Sequence[Kind], left: Sequence[Vis] | None = None
    ) -> list[Fit]:
        """The best circle and the best ellipse about a point, where there are such fits."""
        best = []
        for kind in kinds:
            fits = []
            for size in SIZES:
                start = point.as_circle(size * self.beam_size)
                start = start.as_ellipse() if kind == "ellipse" else start
                fits.append(self._fitter.fit([start], self._left if left is None else left))
            best += sorted(filter(self._is_possible, fits), key=lambda fit: fit.chi2)[:1]
        return best

    def _changes(self, *, with_new: bool) -> Iterator[_Change]:
        """What would lower chi2 while the other components are held: a new one, or another shape of one."""
        new = self._points() if with_new else []
        points = sorted(filter(self._is_possible, new), key=lambda fit: fit.chi2)
        for i, point in enumerate(points[:MAX_JOINT]):
            shaped = self._shaped(point.components[0], ("circle",)) if i == 0 else []
            for fit in (point, *shaped):
                yield self._change(self._left, fit, (*self.components, *fit.components), 1)
        for i, component in enumerate(self.components):
            yield from self._reshaped(i, component)

    def _reshaped(self, i: int, component: Component) -> Iterator[_Change]:
        """A point as a circle, a circle as an ellipse."""
        if component.kind == "ellipse":
            return
        others = (*self.components[:i], *self.components[i + 1 :])
        left = [
            mine + chunk.model([component]) for mine, chunk in zip(self._left, self.data.chunks, strict=True)
        ]
        if component.kind == "point":
            fits = self._shaped(component, ("circle", "ellipse"), left)
        else:
            fits = [self._fitter.fit([component.as_ellipse()], left)]
        for fit in filter(self._is_possible, fits):
            yield self._change(left, fit, (*others, *fit.components), 0)

    def _change(
        self, left: Sequence[Vis], fit: Fit, components: tuple[Component, ...], n_new: int
    ) -> _Change:
        """A change, with the evidence for it if `left` is what the fit was made to."""
        n = sum(n_param(component, self.data.spectral) for component in components) - self._fit.n_param
        evidence = Evidence(self.data.n_vis, 1.0, self._beams(components))
        after = [
            mine - chunk.model(fit.components) for mine, chunk in zip(left, self.data.chunks, strict=True)
        ]
        by_baseline = self._coherence_of.by_baseline
        gain = evidence.gain(by_baseline(self._left), by_baseline(after), is_first=not self.components)
        return _Change(components, n_new, gain - evidence.needed(n, n_source=n_new))

    def _fitted(self, components: Iterable[Component]) -> Fit | None:
        """All components fitted together; those that lose their flux are left out."""
        some = tuple(components)
        while some:
            fit = self._fitter.fit(some)
            good = tuple(component for component in fit.components if component.flux > 0.0)
            if len(good) == len(fit.components):
                return fit
            some = good
        return None

    def _is_possible(self, fit: Fit) -> bool:
        return all(component.flux > 0.0 for component in fit.components)

    def _surplus(self, before: Fit, after: Fit, n_source: int, *, strict: bool) -> float:
        """By how much the evidence for a fit is above what its further parameters need.

        Strict: with residuals as coherent as those of that fit; else as if they were noise.
        """
        residual = self._residual_of(after)
        model = [chunk.vis - left for chunk, left in zip(self.data.chunks, residual, strict=True)]
        coherence = self._coherence_of(residual, model) if strict else 1.0
        evidence = Evidence(self.data.n_vis, coherence, self._beams(after.components))
        by_baseline = self._coherence_of.by_baseline
        gain = evidence.gain(
            by_baseline(self._residual_of(before)),
            by_baseline(residual),
            is_first=not before.components,
        )
        return gain - evidence.needed(after.n_param - before.n_param, n_source=n_source)

    def _residual_of(self, fit: Fit) -> Sequence[Vis]:
        return self._left if fit is self._fit else self.data.residual(fit.components)

    def _beams(self, components: Sequence[Component]) -> float:
        """Number of beams among which the place of a new component was chosen.

        Those in the circle about the brightest that holds all, or all of the image where there is but one.
        """
        if len(components) < 2:
            return self._n_beam
        place = max(components, key=lambda component: component.flux).lm
        radius = max(np.hypot(c.lm[0] - place[0], c.lm[1] - place[1]) for c in components)
        return float(min(1.0 + np.pi * (radius / self.beam_size) ** 2, self._n_beam))

    def _simplified(self, joint: Fit, *, strict: bool) -> Fit:
        """The joint fit without components, and shapes, that it hardly needs."""
        tried: set[tuple[Component, ...]] = set()
        while True:
            coherence = self.coherence if strict else 1.0
            for fewer, n_source in self._simpler(joint, coherence):
                if fewer in tried:
                    continue
                tried.add(fewer)
                trial = self._fitted(fewer)
                if trial is not None and not self._surplus(trial, joint, n_source, strict=strict) > 0.0:
                    joint = trial
                    break
            else:
                return joint

    def _simpler(self, fit: Fit, coherence: float) -> Iterator[tuple[tuple[Component, ...], int]]:
        """Components of which one is left out or simpler, where errors say that little may be lost by it."""
        scale = self._variance_of(fit) * coherence
        evidence = Evidence(self.data.n_vis, coherence, self._beams(fit.components))
        spectral = self.data.spectral
        end = 0
        for i, component in enumerate(fit.components):
            start, end = end, end + n_param(component, spectral)
            covariance = scale * fit.covariance[start:end, start:end]
            before, after = fit.components[:i], fit.components[i + 1 :]
            removal = significance(np.array([component.flux]), covariance[:1, :1])
            if (before or after) and removal < 2.0 * evidence.needed(end - start, n_source=1):
                yield (*before, *after), 1
            if component.kind == "circle":
                lost = significance(np.array(component.root), covariance[-1:, -1:])
                if lost < 2.0 * evidence.needed(1):
                    yield (*before, component.as_point(), *after), 0
            elif component.kind == "ellipse":
                a, b, c = component.root
                by = np.array([[1.0, 0.0, -np.sign(a * c)], [0.0, 1.0, 0.0]])
                lost = significance(by @ [a, b, c], by @ covariance[-3:, -3:] @ by.T)
                if lost < 2.0 * evidence.needed(2):
                    yield (*before, component.as_circle(), *after), 0

    def _variance_of(self, fit: Fit) -> float:
        """Reduced chi2 of a fit."""
        return fit.chi2 / max(1, 2 * self.data.n_vis - fit.n_param)
