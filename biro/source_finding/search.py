"""The search for sources: which component is added, changed or left out next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import FLUXES, unit_for
from biro.imaging.dirty_image import DirtyImage
from biro.imaging.imager import ImagingOptions
from biro.models import SkyModel
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.source_finding.changes import ModelChanges
from biro.source_finding.evidence import DetectionEvidence
from biro.source_finding.fitting.beam_factors import SeenThrough, seen_through
from biro.source_finding.fitting.component import Component, Kind
from biro.source_finding.fitting.correlated import correlated_error_ratios
from biro.source_finding.fitting.gain_noise import GainNoise
from biro.source_finding.fitting.search_data import averaged
from biro.source_finding.fitting.source_fit import ComponentFit, SourceFit
from biro.source_finding.fitting.visibility_data import VisibilityData
from biro.source_finding.found_sources import FoundSource, described
from biro.source_finding.joint_fits import best_change, fitted, simplified
from biro.source_finding.outliers import Masks, masks_of, outliers_of, without
from biro.source_finding.outliers import described as described_outliers
from biro.source_finding.peaks import highest, peaks
from biro.source_finding.proposed_model import propose
from biro.source_finding.residual_image import ResidualImages
from biro.source_finding.search_path import SearchPath

Vis = NDArray[np.complex128]
LEAST_SEEN = 0.05
"""Fraction of a Gaussian's flux that the shortest baselines see at least."""
NOTHING = ComponentFit((), np.inf, np.zeros((0, 0)))
"""The fit that a search begins with."""
NEAR = 15.0
"""Beams from the phase centre within which averages keep sources at first."""


class Search:
    """The sources that were found so far, and the dirty image of the data minus these sources.

    Components are looked for in averages in time and frequency that keep the sources found so far, with
    errors of the antennas' gains as a part of the noise (`GainErrors`); `finish` fits them to all data by
    least squares.

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
        Fits raise `biro.source_finding.fitting.source_fit.Stopped` soon after it gives True.
    of_residuals : bool
        Whether other components, which gains multiply, too, were taken off the data: no averages, no errors.

    Attributes
    ----------
    components : tuple of Component
    explained : Explained
        The residuals of these as noise and errors of gains.
    coherence : float
        Of the residuals without errors of gains (`Coherence`), for the choice of components.
    residual : DirtyImage
        Without the most probable errors of gains until `finish`.
    data : VisibilityData
        That components are fitted to.
    left_out : tuple of bool (n_row, n_chan)
        Outliers of each partition, which are no part of these.
    """

    _fitter: SourceFit
    _evidence: DetectionEvidence

    def __init__(
        self,
        observation: Observation,
        options: ImagingOptions,
        instrument: SkyModel | None = None,
        beams: SeenThrough | None = None,
        stop: Callable[[], bool] = lambda: False,
        *,
        of_residuals: bool = False,
    ) -> None:
        self._given, self._options = observation, options
        self._instrument, self._beams_given = instrument, beams
        self._stop, self._of_residuals = stop, of_residuals
        self.centre = observation.partitions[0].phase_centre
        self.left_out = masks_of(observation, ())
        self._open(observation)
        self._whole = self._all
        self._images.warn_of_reach(self._all.reach)
        self.begin(ellipses=True)

    def _open(self, observation: Observation) -> None:
        """Begin with an observation: all that was given, or a part of it."""
        self._observation, self._backend = observation, self._options.get("backend", "auto")
        self._images = ResidualImages(observation, self._options)
        self.beam_size, half = self._images.beam_size, self._images.half
        self._all = self._data_of(observation)
        self._extent = min(1.5 * half, 0.99, self._all.reach)
        self._radius = min(NEAR * self.beam_size, self._extent)
        self._ends: list[ComponentFit] = []
        self._fit = NOTHING
        self._gains: GainNoise | None = None
        self._set(self._averaged())

    @property
    def components(self) -> tuple[Component, ...]:
        """The components as they were fitted last."""
        return self._fit.components

    @property
    def is_of_averages(self) -> bool:
        """Whether components are fitted to averages of the data now."""
        return self.data is not self._all

    @property
    def has_any(self) -> bool:
        """Whether a model with components was found."""
        return any(fit.components for fit in (*self._ends, self._fit))

    @property
    def reduced_chi2(self) -> float:
        """chi2 / 2N, with the weights as they are."""
        return self.data.chi2(self._left) / max(1, 2 * self.data.n_vis)

    @property
    def variance(self) -> float:
        """Reduced chi2: the variance of the residuals, relative to what the weights say."""
        return self.data.chi2(self._left) / max(1, 2 * self.data.n_vis - self._fit.n_param)

    @property
    def antenna_errors(self) -> dict[int, tuple[float, float, float]]:
        """Errors of each antenna's gain: `GainErrors.by_antenna`."""
        return self._evidence.gains.by_antenna(self.explained)

    def begin(self, *, ellipses: bool) -> None:
        """Begin with no component.

        Parameters
        ----------
        ellipses : bool
            False: as long as points and circles help there are no ellipses, which may hide several
            components.
        """
        self._ellipses, self._is_final = ellipses, False
        self._path = SearchPath(self.data.n_vis)
        self.residual = self._images.blank
        self._evidence.gains.forget()
        self._take(NOTHING)

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
        before, image, has_gains = self._fit, self.residual, self._gains is not None
        reason, forced, high = "", threshold is not None, highest(image)
        if high <= 0.0:
            reason = f"no positive peak left {_peak_text(image, has_gains)}"
        elif threshold is not None and high < threshold * image.rms:
            reason = f"no peak above the threshold {_peak_text(image, has_gains)}"
        elif len(self.components) >= max_sources:
            reason = f"stopped at {max_sources} sources (max_sources, --max-sources); there may be more"
        best = self._best_change([] if reason else self._places(), more=not reason, forced=forced)
        if best is None and not reason and (far := self._far_places()):
            best = self._best_change(far, more=True, forced=forced)
        if best is not None and not forced:
            best = simplified(best, self._fitter, self._evidence)
        if best is None or (best.n_param == before.n_param and not best.chi2 < before.chi2):
            return "" if self._may_be_elliptical() else reason or _refused(image, has_gains)
        self._take(best)
        if self._goes_back(before):
            return self.step(threshold, max_sources)
        self._reach(max(np.hypot(*component.lm) for component in self.components))
        self._image()
        if forced or not self._path.is_stalled(self._evidence, self.coherence):
            return ""
        return "" if self._may_be_elliptical() else _refused(image, has_gains)

    def leave_out(self, *, local: bool = True) -> bool:
        """Go on without outliers; whether these are others than before.

        Parameters
        ----------
        local : bool
            Of `outliers_of`; False: what is left out already stays so.
        """
        self._whole.smear(self.components)
        found = outliers_of(self._given, self._whole, self._whole.residual(self.components), local=local)
        if not local:
            found = tuple(a | b for a, b in zip(self.left_out, found, strict=True))
        if all(np.array_equal(a, b) for a, b in zip(found, self.left_out, strict=True)):
            return False
        kept = vars(self).copy()
        try:
            self._begin_without(found)
        except Exception:
            # Fits to the data as they were are better than none.
            vars(self).update(kept)
            raise
        return True

    def _begin_without(self, left_out: Masks) -> None:
        """Go on with other data: fit the models that there are, settled or not, to these."""
        fits, ellipses = [fit for fit in (*self._ends, self._fit) if fit.components], self._ellipses
        is_settled = not self.components
        self.left_out = left_out
        self._open(without(self._given, left_out))
        self.begin(ellipses=ellipses)
        if not fits:
            return
        self._reach(max(np.hypot(*component.lm) for fit in fits for component in fit.components))
        for fit in fits:
            self.data.smear(fit.components)
        for fit in fits:
            self.begin(ellipses=ellipses)
            self._take(self._fitter.fit(fit.components, n_step=0))
            self._ends.append(self._fit)
        if is_settled:
            self.begin(ellipses=ellipses)
        else:
            del self._ends[-1]
            self._image()

    def about_outliers(self) -> tuple[str, str]:
        """What is left out, and the command that flags it; "" where there is none."""
        if not any(mask.any() for mask in self.left_out):
            return "", ""
        self._whole.smear(self.components)
        residual = self._whole.residual(self.components)
        return described_outliers(self._given, self._whole, residual, self.left_out)

    @property
    def used(self) -> Observation:
        """The observation without outliers."""
        return self._observation

    def settle(self) -> None:
        """Go back to the last step that was worth its parameters, and leave out what is not needed there."""
        coherence, best = self.coherence, self._path.best(self._evidence, self.coherence)
        self._take(self._path[best].fit)
        self._take(simplified(self._fit, self._fitter, self._evidence, coherence))
        self._ends.append(self._fit)

    def choose(self) -> None:
        """Take the best of the models that the search has settled at.

        One of more components must be better by what a point needs.
        """
        ends = sorted(self._ends, key=lambda fit: len(fit.components))
        coherence = min(self._evidence.coherence(self._evidence.explain(fit)) for fit in ends)
        best, *others = map(self._evidence.judge, ends)
        least, score = self._evidence.needed(3, 0, 1.0, coherence), self._evidence.score
        for each in others:
            best = each if score(each, coherence) < score(best, coherence) - least else best
        self._take(best.fit)

    def stop(self) -> None:
        """Take the model with the lowest chi2 of those that there are, settled or not, as it is."""
        fits = [fit for fit in (*self._ends, self._fit) if fit.components]
        self._take(min(fits, key=lambda fit: self.data.chi2(self.data.residual(fit.components))), n_step=0)
        self.finish(fit=False)

    def finish(self, *, fit: bool = True) -> None:
        """Fit the components to all data by least squares, and make the image of the residuals.

        Errors of gains are then in the errors of the components, and the sum of squares is the least.
        Components that lose their flux are left out, unless all of them do.

        Parameters
        ----------
        fit : bool
            False: chi2 and errors alone are those of all data.
        """
        n_step = None if fit else 0
        if self.data is not self._all:
            self._all.smear(self.components)
            self._use(self._all, n_step=n_step)
            if fit and self._all.smear(self.components):
                self._take(self._fit)
        self._fitter = self._fitter.with_gains(None)
        good = tuple(each for each in self.components if each.flux > 0.0) or self.components
        plain = (fitted(self._fitter, self.components) or fitted(self._fitter, good)) if fit else None
        self._fit, self._is_final = plain or self._fitter.fit(good, n_step=0), True
        self._left = self.data.residual(self.components)
        self.residual = self._images(self._sky())

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
                joint = fitted(self._fitter, (*self.components, *circle.components))
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
        return self.at_peak(kind) if self._goes_back(before) else self.sources(self.error_ratios())[0]

    def sources(self, ratio: NDArray[np.float64]) -> tuple[FoundSource, ...]:
        """Brightest first, with errors for noise as large, and as correlated, as the residuals.

        Parameters
        ----------
        ratio : float64 (n_param,)
            As `error_ratios` gives it.
        """
        inverse = self._fit.covariance
        covariance = np.outer(ratio, ratio) * inverse
        if self._gains is None:
            covariance *= self.variance
        else:
            spread = self.data.spread(self.components, self._gains) if self._is_final else 0.0 * inverse
            covariance = self.explained.noise**2 * (covariance + inverse @ spread @ inverse)
        return described(self.components, covariance, self.centre[1], spectral=self.data.spectral)

    def error_ratios(self) -> NDArray[np.float64]:
        """By how much correlated residuals make each error larger, errors of gains taken out; 1 for noise."""
        left: Sequence[Vis] = self._left
        noise = float(np.sqrt(self.variance))
        if self._gains is not None:
            left, noise = self.explained.left, self.explained.noise
        return correlated_error_ratios(self.data, self.components, left, noise)

    def _seen(self, observation: Observation) -> SeenThrough | None:
        """The beams of an observation of these partitions."""
        if self._instrument is None:
            return self._beams_given
        return SeenThrough.of(observation, self._instrument, warn=observation is self._observation)

    def _data_of(self, observation: Observation) -> VisibilityData:
        return VisibilityData(observation, self._backend, self._seen(observation))

    def _averaged(self) -> VisibilityData:
        """Data that keep sources within `_radius`."""
        if self._of_residuals or self._beams_given is not None:
            return self._all
        found = averaged(self._observation, self._radius)
        return self._all if found is self._observation else self._data_of(found)

    def _use(self, data: VisibilityData, *, n_step: int | None = None) -> None:
        """Fit these data from now on, beginning with the components as they are."""
        self._set(data)
        self._path.cut(len(self._path) - 1)
        self._take(self._fit, n_step=n_step)

    def _set(self, data: VisibilityData) -> None:
        """Make these the data that components are fitted to."""
        self.data = data
        # Of a Gaussian, exp(-2 pi^2 sigma^2 u^2) of the flux is seen on a baseline of u wavelengths.
        seen = np.sqrt(4.0 * np.log(2.0) * -np.log(LEAST_SEEN)) / (np.pi * max(data.shortest, 1e-9))
        self._fitter = SourceFit(data, self._extent, min(self._images.half, float(seen)), self._stop)
        n_beam, gains = self._images.n_beam, not self._of_residuals
        self._evidence = DetectionEvidence(data, self.beam_size, n_beam, with_gains=gains)

    def _reach(self, radius: float) -> None:
        """Use averages that keep sources as far away as this, and little more."""
        wanted = float(np.clip(1.5 * radius, NEAR * self.beam_size, self._extent))
        if 0.5 * self._radius <= wanted and radius <= self._radius:
            return
        self._radius = wanted
        if (data := self._averaged()) is not self.data:
            self._use(data)

    def _changes(self) -> ModelChanges:
        return ModelChanges(self._fitter, self.beam_size, self.components, self._left)

    def _places(self) -> list[Component]:
        """Points where the image of the residuals has its highest peaks, as far as averages keep sources."""
        if not self.components:
            self._far_places()
        return list(peaks(self.residual, (0.0, self._extent if self.data is self._all else self._radius)))

    def _far_places(self) -> list[Component]:
        """Peaks beyond what averages keep, higher than errors make them; averages keep these from now on."""
        if self.data is self._all:
            return []
        noise2 = (self.residual.noise * self.explained.noise) ** 2 * self.coherence
        least = noise2 * self._evidence.needed(3, 1, self._images.n_beam) if self.components else 0.0
        beyond = peaks(self.residual, (self._radius, self._extent))
        if found := [p for p in beyond if p.flux**2 > least]:
            self._reach(float(max(np.hypot(*place.lm) for place in found)))
        return found

    def _best_change(self, places: Sequence[Component], *, more: bool, forced: bool) -> ComponentFit | None:
        """The best change; with `more`, there may be more components than before."""
        changes = self._changes()
        kinds = (
            changes.additions(places),
            changes.splits() if more else (),
            changes.reshapings(ellipses=self._ellipses),
        )
        return best_change(kinds, self._path[-1], self._fitter, self._evidence, forced=forced)

    def _may_be_elliptical(self) -> bool:
        """Go on with ellipses from the best step, where there were none up to now; whether that is so."""
        if self._ellipses or not self.components:
            return False
        self._ellipses = True
        best = self._path.best(self._evidence, self.coherence)
        if best < len(self._path) - 1:
            fit = self._path[best].fit
            self._path.cut(best)
            self._take(fit)
            self._image()
        return True

    def _goes_back(self, before: ComponentFit) -> bool:
        """Average models over integrations and channels where the components need it.

        Where that is new, those of `before` are fitted again: a source that averages dim looks longer.
        """
        if not self.data.smear(self.components):
            return False
        self._path.cut(len(self._path) - 2)
        self._take(before)
        return True

    def _take(self, fit: ComponentFit, *, n_step: int | None = None) -> None:
        """Make this the fit that changes start from, fitted again with the errors of gains that it shows."""
        if fit.components:
            self._gains = self._evidence.learn(fit)
            self._fitter = self._fitter.with_gains(self._gains)
        else:
            self._gains, self._fitter = None, self._fitter.with_gains(None)
            n_step = 0
        fit = self._fitter.fit(fit.components, n_step=n_step)
        self._fit, self._left = fit, self.data.residual(fit.components)
        self.explained = self._evidence.explain(fit)
        self.coherence = self._evidence.coherence(self.explained)
        self._path.add(self._evidence.judge(fit))

    def _turn(self, i_part: int, part: Partition) -> Vis:
        """The most probable errors of gains in the rows of a partition."""
        return self._evidence.gains.turn(self.explained, i_part, part.time, part.antenna1, part.antenna2)

    def _sky(self) -> SkyModel:
        """The components as a model of fixed values."""
        found = described(
            self.components, 0.0 * self._fit.covariance, self.centre[1], spectral=self.data.spectral
        )
        return seen_through(propose(found, self.centre, self.data.ref_freq, free=False), self._instrument)

    def _image(self) -> None:
        """Make the image of the residuals."""
        self.residual = self._images(self._sky(), None if self._gains is None else self._turn)


def _refused(image: DirtyImage, has_gains: bool) -> str:
    return f"no further significant source {_peak_text(image, has_gains)}"


def _peak_text(image: DirtyImage, has_gains: bool) -> str:
    """How high the highest peak of the residuals is, from which errors of gains may have been taken."""
    high = highest(image)
    without = ", gain errors removed" if has_gains else ""
    unit = unit_for([high], FLUXES)
    times = f"{high / max(image.rms, 1e-300):.3g} times the image rms"
    return f"(highest residual peak {unit.text(high)} {unit.name}/beam, {times}{without})"
