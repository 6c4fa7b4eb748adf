"""The search for sources: which component is added, changed or left out next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.images.imager import Imager, ImagingOptions
from biro.models import SkyModel
from biro.models.bound.positions.bearing import bearing
from biro.observation.observation import Observation
from biro.simulation.prediction import predict
from biro.source_finding.beam_factors import SeenThrough, seen_through
from biro.source_finding.changes import Change, Changes, simpler
from biro.source_finding.component import Component, Kind, n_param
from biro.source_finding.evidence import Coherence, Evidence, Judged
from biro.source_finding.found_sources import FoundSource
from biro.source_finding.peaks import highest, peaks
from biro.source_finding.proposed_model import propose
from biro.source_finding.search_data import averaged
from biro.source_finding.source_fit import Fit, SourceFit
from biro.source_finding.visibility_data import VisibilityData

Vis = NDArray[np.complex128]
log = logging.getLogger(__name__)
LEAST_SEEN = 0.05
"""Fraction of a Gaussian's flux that the shortest baselines see at least."""
PATIENCE = 4
"""Steps of little progress after which the search ends where none of them is worth its parameters."""
PROGRESS = 0.05
"""A step that lowers ln chi2 by so much is no little progress."""
MAX_JOINT = 4
"""Changes of the model that are tried in fits of all components, the most promising first, before none is."""
NEAR = 15.0
"""Beams from the phase centre within which averages keep sources at first."""


class Search:
    """The sources that were found so far, and the dirty image of the data minus these sources.

    Components are looked for in averages in time and frequency that keep the sources found so far;
    `finish` fits them to all data.

    Parameters
    ----------
    observation : Observation
    **options
        Of the image.
    instrument : SkyModel, optional
        Through whose beam, pointing and feeds sources are seen; fixed values.
    beams : SeenThrough, optional
        In place of it, where the beams are known.
    stop : function, optional
        Fits raise `biro.source_finding.source_fit.Stopped` soon after it gives True.
    average : bool
        Whether components are looked for in averages; not for data with beams of their own.

    Attributes
    ----------
    components : tuple of Component
    coherence : float
        How many residuals are alike (`Coherence`).
    residual : DirtyImage
    data : VisibilityData
        That components are fitted to.
    """

    def __init__(
        self,
        observation: Observation,
        options: ImagingOptions,
        instrument: SkyModel | None = None,
        beams: SeenThrough | None = None,
        stop: Callable[[], bool] = lambda: False,
        *,
        average: bool = True,
    ) -> None:
        if "stokes" in options:
            raise InputError("sources are looked for in Stokes I; leave stokes out")
        if any(part.tapered for part in observation.partitions):
            raise InputError("weights are tapered, so that errors would be too small; leave the taper out")
        self._observation, self._backend = observation, options.get("backend", "auto")
        self._instrument, self._beams_given, self._stop = instrument, beams, stop
        self._average = average and beams is None
        self.centre = observation.partitions[0].phase_centre
        self._imager = Imager(observation, **options)
        beam, cell = self._imager.beam, self._imager.cell
        self.beam_size = beam.minor if beam is not None else 5.0 * cell
        self._half = 0.5 * self._imager.n_pixel * cell
        self._n_beam = (2.0 * self._half / self.beam_size) ** 2
        self._all = self._data_of(observation)
        self._extent = min(1.5 * self._half, 0.99, self._all.reach)
        self._warn_of_reach(self._all.reach)
        self._radius = min(NEAR * self.beam_size, self._extent)
        self._ends: list[Fit] = []
        self._blank = self._imager.image()
        self._path: list[Judged] = []
        self._use(self._averaged())
        self.begin(ellipses=True)

    @property
    def components(self) -> tuple[Component, ...]:
        """The components as they were fitted last."""
        return self._fit.components

    @property
    def has_any(self) -> bool:
        """Whether a model with components was found."""
        return bool(self.components or any(fit.components for fit in self._ends))

    @property
    def reduced_chi2(self) -> float:
        """chi2 / 2N, with the weights as they are."""
        return self._fit.chi2 / max(1, 2 * self.data.n_vis)

    @property
    def variance(self) -> float:
        """Reduced chi2: the variance of the noise, relative to what the weights say."""
        return self._variance_of(self._fit)

    @property
    def gain_error(self) -> float:
        """Rms of relative errors of gains that the residuals show."""
        return self._path[-1].explained.gain_error

    def begin(self, *, ellipses: bool) -> None:
        """Begin with no component.

        Parameters
        ----------
        ellipses : bool
            False: as long as points and circles help there are no ellipses, which may hide several
            components.
        """
        self._ellipses, self._n_slow, self._path = ellipses, 0, []
        self.residual = self._blank
        self._take(Fit((), self.data.chi2([chunk.vis for chunk in self.data.chunks]), np.zeros((0, 0))))

    @property
    def without_gains(self) -> float:
        """Rms of the residuals that errors of gains do not explain, in units of the stated noise."""
        return self._path[-1].explained.noise

    def step(self, threshold: float | None, max_sources: int) -> str:
        """Add the component that the data need most, or let one have a shape.

        It is enough here that the data need it if what gains do not explain is noise. Whether it is, is seen
        when what is next to it has been found, too.

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
        reason, forced = "", threshold is not None
        if high <= 0.0:
            reason = f"{peak} is not above 0"
        elif threshold is not None and high < threshold * rms:
            reason = f"{peak} is {times}"
        elif len(self.components) >= max_sources:
            reason = f"{max_sources} sources are as many as were asked for"
        refused = f"{peak} {times}, is no source that lowers chi2 significantly"
        best = self._best_change([] if reason else self._places(), forced=forced)
        if best is None and not reason and (far := self._far_places()):
            best = self._best_change(far, forced=forced)
        if best is None:
            return "" if self._may_be_elliptical() else reason or refused
        self._take(best if forced else self._simplified(best))
        if self._fit.n_param == before.n_param and not self._fit.chi2 < before.chi2:
            return "" if self._may_be_elliptical() else reason or refused
        if self._goes_back(before):
            return self.step(threshold, max_sources)
        self._reach(max(np.hypot(*component.lm) for component in self.components))
        self._image()
        return "" if forced or not self._is_stalled() or self._may_be_elliptical() else refused

    def settle(self) -> None:
        """Go back to the last step that was worth its parameters, and leave out what is not needed there."""
        best = self._path[self._best_of_path()].fit
        self._take(self._simplified(best, self._evidence.coherence(self._path[-1])))
        self._ends.append(self._fit)

    def choose(self) -> None:
        """Take the best of the models that the search has settled at.

        One of more components must be better by what two parameters need.
        """
        ends = sorted(self._ends, key=lambda fit: len(fit.components))
        judged = [self._evidence.judge(fit) for fit in ends]
        coherence = min(map(self._evidence.coherence, judged))
        best = judged[0]
        for each in judged[1:]:
            if self._score(each, coherence) < self._score(best, coherence) - self._evidence.needed(
                2, 0, 1.0, coherence
            ):
                best = each
        self._take(best.fit)

    def stop(self) -> None:
        """Take the model with the lowest chi2 of those that there are, settled or not, as it is."""
        fits = [fit for fit in (*self._ends, self._fit) if fit.components]
        self._take(min(fits, key=lambda fit: self.data.chi2(self.data.residual(fit.components))))
        self.finish(fit=False)

    def finish(self, *, fit: bool = True) -> None:
        """Fit the components to all data, without averages, and make the image of the residuals.

        Parameters
        ----------
        fit : bool
            False: chi2 and errors alone are those of all data.
        """
        if self.data is not self._all:
            self._all.smear(self.components)
            self._use(self._all, n_step=None if fit else 0)
            if fit and self._all.smear(self.components):
                self._take(self._again(self._fit))
        self._image()

    def add_circle(self) -> bool:
        """Add a circular Gaussian where it lowers chi2 most, whatever the evidence says.

        Returns
        -------
        bool
            Whether there is such a place.
        """
        changes = self._changes()
        for point in changes.points(self._places()):
            for circle in changes.shaped(point.components[0], ("circle",)):
                joint = self._fitted((*self.components, *circle.components))
                if joint is not None and joint.chi2 < self._fit.chi2:
                    self._take(joint)
                    self._image()
                    return True
        return False

    def is_clean(self, thermal: float) -> bool:
        """Whether a model leaves nothing but thermal noise, which is so many times the stated one."""
        return bool(self.reduced_chi2 < 1.05 * thermal**2 + 4.0 / np.sqrt(max(1, self.data.n_vis)))

    def at_peak(self, kind: Kind) -> FoundSource | None:
        """The component of this kind that fits best at the highest peak of the data, where there is one."""
        before, changes = self._fit, self._changes()
        fits = changes.points(self._places())[:1]
        if fits and kind != "point":
            fits = changes.shaped(fits[0].components[0], (kind,))
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
            if component.kind == "ellipse":  # components count it from the north of the phase centre
                pa = (pa - float(bearing(np.array(component.lm), self.centre[1]))) % np.pi
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

    def _seen(self, observation: Observation) -> SeenThrough | None:
        """The beams of an observation of these partitions."""
        if self._instrument is None:
            return self._beams_given
        return SeenThrough.of(observation, self._instrument, warn=observation is self._observation)

    def _warn_of_reach(self, reach: float) -> None:
        if reach < np.sqrt(2.0) * self._half:
            log.warning(
                "the beam is known up to %.3g deg from the phase centre, and the image reaches %.3g deg: no "
                "source is looked for beyond the beam", *np.rad2deg([reach, np.sqrt(2.0) * self._half])
            )  # fmt: skip

    def _data_of(self, observation: Observation) -> VisibilityData:
        return VisibilityData(observation, self._backend, self._seen(observation))

    def _averaged(self) -> VisibilityData:
        """Data that keep sources within `_radius`."""
        if not self._average:
            return self._all
        found = averaged(self._observation, self._radius)
        return self._all if found is self._observation else self._data_of(found)

    def _use(self, data: VisibilityData, *, n_step: int | None = None) -> None:
        """Fit these data from now on."""
        self.data = data
        # Of a Gaussian, exp(-2 pi^2 sigma^2 u^2) of the flux is seen on a baseline of u wavelengths.
        seen = np.sqrt(4.0 * np.log(2.0) * -np.log(LEAST_SEEN)) / (np.pi * max(data.shortest, 1e-9))
        self._fitter = SourceFit(data, self._extent, min(self._half, float(seen)), self._stop)
        self._evidence, self._coherence_of = Evidence(data), Coherence(data)
        if self._path:
            self._path = [self._evidence.judge(judged.fit) for judged in self._path[:-1]]
            self._take(self._again(self._fit, n_step=n_step))

    def _reach(self, radius: float) -> None:
        """Use averages that keep sources as far away as this, and little more."""
        wanted = float(np.clip(1.5 * radius, NEAR * self.beam_size, self._extent))
        if 0.5 * self._radius <= wanted and radius <= self._radius:
            return
        self._radius = wanted
        data = self._averaged()
        if data is not self.data:
            self._use(data)

    def _changes(self) -> Changes:
        return Changes(self._fitter, self.beam_size, self.components, self._left)

    def _places(self) -> list[Component]:
        """Points where the image of the residuals has its highest peaks, as far as averages keep sources."""
        if not self.components:
            self._far_places()
        found = [place for place in peaks(self.residual) if np.hypot(*place.lm) <= self._extent]
        return [p for p in found if self.data is self._all or np.hypot(*p.lm) <= self._radius]

    def _far_places(self) -> list[Component]:
        """Peaks beyond what averages keep, higher than errors make them; averages keep these from now on."""
        if self.data is self._all:
            return []
        noise2 = self.residual.noise**2 * self.variance * self.coherence
        least = noise2 * self._evidence.needed(3, 1, self._n_beam) if self.components else 0.0
        found = [
            place
            for place in peaks(self.residual)
            if self._radius < np.hypot(*place.lm) <= self._extent and place.flux**2 > least
        ]
        if found:
            self._reach(float(max(np.hypot(*place.lm) for place in found)))
        return found

    def _best_change(self, places: Sequence[Component], *, forced: bool) -> Fit | None:
        """The change that is best when all components are fitted together; None where none is good."""
        changes = self._changes()
        best, least = None, 0.0
        splits = changes.splits() if places else ()
        for some in (
            changes.additions(places),
            splits,
            changes.reshapings(ellipses=self._ellipses),
        ):
            ranked = sorted(some, key=self._promise)
            for change in ranked[:MAX_JOINT]:
                joint = self._fitted(change.components)
                if joint is None:
                    continue
                surplus = self._surplus(self._path[-1], self._evidence.judge(joint), change.n_new)
                if forced and change.n_new and joint.chi2 < self._fit.chi2:
                    surplus = max(surplus, 1e-9)
                if surplus > least:
                    best, least = joint, surplus
                    break
        return best

    def _promise(self, change: Change) -> float:
        """How good a change is while the other components are held; the lowest is the best."""
        n = sum(n_param(component, self.data.spectral) for component in change.components)
        return 2.0 * self.data.n_vis * float(np.log(max(change.chi2, 1e-300))) + self._evidence.needed(
            n, change.n_new, self._beams(change.components)
        )

    def _is_stalled(self) -> bool:
        """Whether the last steps made little progress, and none of them is worth its parameters."""
        before, after = self._path[-2:]
        gain = before.explained.minus_2_log - after.explained.minus_2_log
        self._n_slow = 0 if gain > PROGRESS * 2.0 * self.data.n_vis else self._n_slow + 1
        n_beyond = len(self._path) - 1 - self._best_of_path()
        return min(self._n_slow, n_beyond) >= PATIENCE

    def _may_be_elliptical(self) -> bool:
        """Go on with ellipses from the best step, where there were none up to now; whether that is so."""
        if self._ellipses or not self.components:
            return False
        best = self._best_of_path()
        self._ellipses, self._n_slow = True, 0
        if best < len(self._path) - 1:
            fit = self._path[best].fit
            self._path = self._path[:best]
            self._take(fit)
            self._image()
        return True

    def _best_of_path(self) -> int:
        """The step after which no other was worth its parameters.

        What is left after the last step says how coherent errors are; before, structure that was not found
        makes residuals alike.
        """
        coherence = self._evidence.coherence(self._path[-1])
        scores = [self._score(judged, coherence) for judged in self._path[1:]]
        return 1 + int(np.argmin(scores)) if scores else 0

    def _score(self, judged: Judged, coherence: float) -> float:
        """-2 ln of the evidence for a model; the lowest is the best."""
        components = judged.fit.components
        return judged.explained.minus_2_log / coherence + self._evidence.needed(
            judged.fit.n_param, len(components), self._beams(components), coherence
        )

    def _goes_back(self, before: Fit) -> bool:
        """Average models over integrations and channels where the components ask for it.

        Where that is new the components of `before` are fitted again: a source of which averages take a part
        looks like a longer one.
        """
        if not self.data.smear(self.components):
            return False
        self._path = [self._evidence.judge(judged.fit) for judged in self._path[:-2]]
        self._take(self._again(before))
        return True

    def _again(self, fit: Fit, *, n_step: int | None = None) -> Fit:
        """A fit of the same components."""
        return self._fitter.fit(fit.components, n_step=n_step) if fit.components else fit

    def _take(self, fit: Fit) -> None:
        """Make this the fit that changes start from."""
        self._fit = fit
        self._left = self.data.residual(fit.components)
        model = [chunk.vis - left for chunk, left in zip(self.data.chunks, self._left, strict=True)]
        self.coherence = self._coherence_of(self._left, model)
        self._path.append(self._evidence.judge(fit))

    def _image(self) -> None:
        """Make the image of the residuals."""
        sky = propose(self.sources(), self.centre, self.data.ref_freq, free=False)
        sky = seen_through(sky, self._instrument)
        model = list(predict(self._observation, sky, backend=self._backend))
        self.residual = self._imager.image("residual", model)

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

    def _surplus(self, before: Judged, after: Judged, n_source: int, coherence: float = 1.0) -> float:
        """By how much the evidence for a fit is above what its further parameters need."""
        n_param, n_beam = after.fit.n_param - before.fit.n_param, self._beams(after.fit.components)
        gain = self._evidence.gain(before, after) / coherence
        return gain - self._evidence.needed(n_param, n_source, n_beam, coherence)

    def _beams(self, components: Sequence[Component]) -> float:
        """Number of beams among which the place of a new component was chosen.

        Those in the circle about the brightest that holds all, or all of the image where there is but one.
        """
        if len(components) < 2:
            return self._n_beam
        place = max(components, key=lambda component: component.flux).lm
        radius = max(np.hypot(c.lm[0] - place[0], c.lm[1] - place[1]) for c in components)
        return float(min(1.0 + np.pi * (radius / self.beam_size) ** 2, self._n_beam))

    def _simplified(self, joint: Fit, coherence: float = 1.0) -> Fit:
        """The joint fit without components, and shapes, that it hardly needs."""
        judged, tried = self._evidence.judge(joint), set[tuple[Component, ...]]()
        while True:
            scale, n_beam = self._variance_of(judged.fit) * coherence, self._beams(judged.fit.components)
            most = 2.0 * np.array([self._evidence.needed(n, 0, 1.0, coherence) for n in (1, 2, 1)])
            most[2] += self._evidence.needed(0, 1, n_beam, coherence)
            for fewer, n_source in simpler(judged.fit, scale, self.data.spectral, most):
                if fewer in tried:
                    continue
                tried.add(fewer)
                fit = self._fitted(fewer)
                trial = None if fit is None else self._evidence.judge(fit)
                if trial is not None and not self._surplus(trial, judged, n_source, coherence) > 0.0:
                    judged = trial
                    break
            else:
                return judged.fit

    def _variance_of(self, fit: Fit) -> float:
        """Reduced chi2 of a fit."""
        return fit.chi2 / max(1, 2 * self.data.n_vis - fit.n_param)
