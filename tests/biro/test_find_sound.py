"""What find proposes is sound: outliers move nothing, and no two sources of a model can change places."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import signal

import numpy as np
import pytest
from test_cli import biro as command
from test_find_forms import ARCMIN, OPTIONS, observed
from test_imaging import CENTRE

import biro
from biro.errors import BiroError
from biro.models import GaussianSource, Order, PointSource
from biro.source_finding import find as finding
from biro.source_finding import joint_fits
from biro.source_finding import search as searching
from biro.source_finding.fitting.component import Component
from biro.source_finding.fitting.source_fit import Stopped
from biro.source_finding.found_sources import FoundSource
from biro.source_finding.outliers import masks_of, without
from biro.source_finding.proposed_model import limits_of, propose
from biro.source_finding.residual_image import ResidualImages

PAIR = [
    PointSource("a", east="0 arcmin", north="0 arcmin", I="1 Jy"),
    PointSource("b", east="0.6 arcmin", north="0.8 arcmin", I="0.8 Jy"),
]
# The beam is 4 arcmin long: blobs that a point does not fit, 3 beams apart.
BLOBS = [
    GaussianSource("a", east="0 arcmin", north="0 arcmin", I="2 Jy", fwhm="3 arcmin"),
    GaussianSource("b", east="6 arcmin", north="-10 arcmin", I="0.5 Jy", fwhm="5 arcmin"),
]


def hit(observation, places, size):
    """These visibilities (row, channel) off by so many Jy, in all correlations."""
    (part,) = observation.partitions
    vis = part.vis.copy()
    for i, (row, chan) in enumerate(places):
        vis[row, chan] += size * np.exp(2j * i)
    return dataclasses.replace(observation, partitions=(dataclasses.replace(part, vis=vis),))


@pytest.mark.parametrize("size", [2.0, 1000.0])
def test_outliers_are_left_out_as_if_they_were_flagged(size):
    """Noise is 0.02 Jy in Stokes I: 100 and 50 000 sigma. What is found is what flagged data give."""
    clean, places = observed(BLOBS, n_row=600), [(17, 0), (250, 1), (251, 0)]
    masks = masks_of(clean, ((0, *place) for place in places))
    flagged = biro.find_sources(without(clean, masks), **OPTIONS)
    assert (flagged.n_outlier, flagged.outliers, flagged.sky.noise.distribution) == (0, "", "gaussian")
    assert not any("outlier" in line for line in flagged.misfit)
    assert flagged.sky.constraints == ()  # these sources are too far apart to change places
    found = biro.find_sources(hit(clean, places, size), **OPTIONS)
    assert found.n_outlier == 3
    assert found.outliers.startswith("OUTLIERS: left out of the fit above\n  3 visibilities (0.25 %) are")
    assert not any("outlier" in line for line in found.misfit)
    assert len(found.sources) == len(flagged.sources) == 2
    for mine, other in zip(found.sources, flagged.sources, strict=True):
        # Fits end where a step lowers chi2 by less than 0.01: within 0.1 sigma of the minimum, each.
        assert mine.kind == other.kind
        assert abs(mine.flux - other.flux) < 0.2 * other.flux_err
        assert np.hypot(mine.east - other.east, mine.north - other.north) < 0.2 * other.position_err
    # Data in memory cannot be flagged by a command: the noise of the model has outliers.
    assert (found.flag_command, found.sky.noise.distribution) == ("", "student-t")


def test_a_second_search_that_meets_an_outlier_keeps_the_model_of_the_first():
    """What the first search settled at is fitted again to the data without the outlier."""
    search = finding.Search(hit(observed(BLOBS, n_row=600), [(17, 0)], 3.0), OPTIONS)
    while not search.step(None, 2):
        pass
    search.settle()
    assert len(search.components) == 2
    search.begin(ellipses=False)
    search.step(None, 1)
    assert search.leave_out()
    search.settle()
    assert len(search.components) == 1
    search.choose()
    search.finish()
    found = search.sources(search.error_ratios())
    clean = biro.find_sources(search.used, **OPTIONS).sources
    assert len(found) == len(clean) == 2
    for mine, other in zip(found, clean, strict=True):
        # Both fits end within 0.1 sigma of the minimum of the same data, in each parameter.
        assert abs(mine.flux - other.flux) < 0.2 * other.flux_err


@pytest.mark.parametrize("is_last", [False, True])
def test_a_source_without_flux_is_left_out_of_the_last_fit_alone(monkeypatch, is_last):
    """A component at a hole of -0.1 Jy comes with each fit of the search; the bright source stays.

    `is_last`: the fit to all data ends without any component as long as the one at the hole is there.
    """
    hole, fitted = Component((-10 * ARCMIN, 25 * ARCMIN), -0.1), searching.fitted
    sky = [PointSource("p", east="10 arcmin", north="-20 arcmin", I="1 Jy")]
    sky.append(PointSource("h", east="-10 arcmin", north="25 arcmin", I="-0.1 Jy"))
    monkeypatch.setattr(joint_fits, "fitted", lambda fitter, some: fitter.fit((*list(some)[:1], hole)))
    if is_last:
        monkeypatch.setattr(
            searching, "fitted", lambda fitter, some: fitted(fitter, some) if len(some) == 1 else None
        )
    found = biro.find_sources(observed(sky, n_row=600), threshold=10.0, max_sources=1, **OPTIONS)
    (source,) = found.sources
    assert abs(source.flux - 1.0) < 5 * source.flux_err
    assert found.reason.endswith(
        ". 1 source left out, because the flux is not above 0 once all data are fitted"
    )


def test_a_second_search_that_finds_nothing_keeps_the_model_of_the_first(monkeypatch):
    steps, calls = finding._steps, []

    def nothing_at_last(*given):
        calls.append(given)
        return steps(*given) if len(calls) == 1 else "no further significant source"

    monkeypatch.setattr(finding, "_steps", nothing_at_last)
    monkeypatch.setattr(finding.Search, "is_clean", lambda *_: False)
    found = biro.find_sources(observed(BLOBS, n_row=300), max_sources=2, **OPTIONS)
    assert len(calls) == 2
    assert len(found.sources) == 2


def test_an_error_while_outliers_are_left_out_keeps_what_was_found(monkeypatch):
    averages, averaged = [], searching.averaged

    def failing(*given):
        averages.append(given)
        if len(averages) == 2:
            raise BiroError("no memory for averages")
        return averaged(*given)

    monkeypatch.setattr(searching, "averaged", failing)
    kept = biro.find_sources(hit(observed(BLOBS[:1], n_row=300), [(17, 0)], 0.5), **OPTIONS)
    assert kept.stopped == "stopped by an error (no memory for averages)"
    assert isinstance(kept.fault, BiroError)
    assert len(kept.sources) >= 1


def test_what_ends_the_check_after_the_search_keeps_the_model(monkeypatch):
    observation, leave_out = observed(PAIR[:1], n_row=300), finding.Search.leave_out

    def interrupted(search, *, local=True):
        if local:
            return leave_out(search)
        os.kill(os.getpid(), signal.SIGINT)
        raise Stopped  # as the next step of a fit does

    def failing(*_):
        raise BiroError("no memory")

    monkeypatch.setattr(finding, "_names_outliers", lambda misfit: True)
    monkeypatch.setattr(finding.Search, "leave_out", interrupted)
    stopped = biro.find_sources(observation, **OPTIONS)
    assert stopped.stopped == "the check of the model after the search was stopped by SIGINT"
    assert stopped.fault is None
    monkeypatch.setattr(finding, "_diagnosed", failing)
    faulty = biro.find_sources(observation, **OPTIONS)
    assert faulty.stopped == "the check of the model after the search was stopped by an error (no memory)"
    assert isinstance(faulty.fault, BiroError)
    # The search had ended: this is its last fit, to all data.
    assert [len(each.sources) for each in (stopped, faulty)] == [1, 1]
    assert faulty.sources == stopped.sources


def test_a_noisy_antenna_has_no_outliers():
    """Noise of one antenna is 3 times what its weights say: many residuals exceed the others' bound."""
    blank, rng = observed(BLOBS, n_row=1200), np.random.default_rng(8)
    (part,) = blank.partitions
    vis, noisy = part.vis.copy(), (part.antenna1 == 1) | (part.antenna2 == 1)
    more = 0.03 * np.sqrt(8) * rng.standard_normal((2, *vis[noisy].shape))
    vis[noisy] += more[0] + 1j * more[1]
    spoilt = dataclasses.replace(part, vis=vis)
    found = biro.find_sources(dataclasses.replace(blank, partitions=(spoilt,)), max_sources=2, **OPTIONS)
    assert found.n_outlier == 0
    assert found.sky.noise.distribution == "gaussian"


def test_the_fit_that_follows_is_of_flagged_data(measurement_set, tmp_path):
    from casacore.tables import table

    copy = tmp_path / "wsrt.ms"
    shutil.copytree(measurement_set("wsrt_3c343.1"), copy)
    with table(str(copy), readonly=False, ack=False) as main:
        data = main.getcol("DATA")
        data[40, 5] *= 30.0
        main.putcol("DATA", data)
    code, out, said = command("find", copy, "-o", tmp_path / "sky.toml", "--max-sources", "2")
    assert code == 0, said
    assert "One visibility is an outlier" in out
    flag, fit = said.splitlines()[-1].split("next: ")[1].split(" && ")
    words = shlex.split(flag)
    assert words[:3] == ["biro", "flag", str(copy)]
    assert shlex.split(fit)[:4] == ["biro", "fit", str(copy), str(tmp_path / "sky.toml")]
    code, out, said = command(*words[1:])
    assert code == 0, said
    # Nothing else was flagged, and of this all four correlations.
    with table(str(copy), ack=False) as main:
        assert np.argwhere(main.getcol("FLAG").all(axis=2)).tolist() == [[40, 5]]
    again = biro.find_sources(biro.read_ms(copy), max_sources=2)
    assert again.n_outlier == 0


def test_close_sources_cannot_change_places():
    """Two points a quarter of a beam apart: without limits in the middle, the fit has a second maximum."""
    observation = observed(PAIR, n_row=600)
    found = biro.find_sources(observation, **OPTIONS)
    assert [source.kind for source in found.sources] == ["point", "point"]
    # The second is north-east of the first, and farther to the north: 8 errors and more.
    first, second = found.sources
    assert second.north - first.north > 8 * np.hypot(first.position_err, second.position_err)
    assert found.sky.constraints == ()
    middle = 0.5 * (first.north + second.north) / ARCMIN
    below, above = (source.north for source in found.sky.sources)
    unit = {"arcmin": 1.0, "arcsec": 60.0}[below.unit]
    assert [below.high / unit, above.low / unit] == pytest.approx([middle, middle], rel=0.02)  # 3 digits
    beam = finding.Search(observation, OPTIONS).beam_size
    alone = [
        propose([source], CENTRE, 1e8, beam_size=beam).sources[0] for source in found.sources
    ]  # without the other one
    free = dataclasses.replace(found.sky, sources=alone)
    both = biro.maximise(biro.Likelihood(observation, free), seed=1, progress=False)
    assert len(both.modes) == 2
    fitted = biro.maximise(biro.Likelihood(observation, found.sky), seed=1, progress=False)
    assert len(fitted.modes) == 1
    assert not any(word in str(fitted) for word in ("SEVERAL MODES", "LIMIT"))
    ordered = dataclasses.replace(found.sky, constraints=(Order(["s2.north", "s1.north"]),))
    text = str(dataclasses.replace(found, sky=ordered))
    assert "could exchange them: s2.north > s1.north" in text
    assert "a fit may exchange s1 and s2" in str(dataclasses.replace(found, exchangeable=(("s1", "s2"),)))


@pytest.mark.parametrize(("apart", "limit", "ordered"), [(3, 10, False), (6, 4, True), (10, 5, False)])
def test_limits_and_orders_of_a_pair(apart, limit, ordered):
    """Sources so many errors of their difference apart to the north have limits so many from each."""
    error = np.sqrt(0.5) * ARCMIN
    pair = [FoundSource(f"s{i}", "point", 0.0, i * apart * ARCMIN, 1.0, 0.1, error) for i in range(2)]
    limits = limits_of(pair, 20 * ARCMIN)
    expected = [limit * ARCMIN, (apart - limit) * ARCMIN]
    assert [limits.high[0, 2], limits.low[1, 2]] == pytest.approx(expected)
    assert limits.orders == ((Order(["s1.north", "s0.north"]),) if ordered else ())
    assert limits.exchangeable == ()


def crowd(n, size, error, *, beam=ARCMIN):
    """Points of 0.3 to 1 +- 0.02 Jy spread over an area; errors of positions in beams."""
    rng = np.random.default_rng(1)
    places = rng.uniform(0.0, size, (n, 2)) * beam
    fluxes = np.sort(rng.uniform(0.3, 1.0, n))[::-1]
    return [
        FoundSource(f"s{i}", "point", *place, flux, 0.02, error * beam)
        for i, (place, flux) in enumerate(zip(places, fluxes, strict=True))
    ]


@pytest.mark.parametrize(
    ("n", "size", "error"),
    [(12, (4, 0.4), 0.01), (30, (4, 0.4), 0.01), (50, (4, 0.4), 0.01), (12, (0.25, 0.25), 0.02)],
)
def test_a_crowd_keeps_its_prior_and_its_places(n, size, error):
    sources = crowd(n, size, error)
    limits = limits_of(sources, ARCMIN)
    assert limits.exchangeable == ()
    sky = propose(sources, CENTRE, 1e8, beam_size=ARCMIN)
    # Each start of a fit draws until the orders hold: 8 starts of 24 sources need more than one in 100.
    assert biro.Likelihood(observed(PAIR, n_row=60), sky).log_constraint_mass > np.log(0.1)
    value = np.array([(s.flux, s.east, s.north) for s in sources])
    errors = np.array([(s.flux_err, s.position_err, s.position_err) for s in sources])
    assert np.all(limits.low <= value - 3 * errors)
    assert np.all(limits.high >= value + 3 * errors)
    # [i, j]: source i may be at the fitted values of source j.
    inside = np.all((limits.low[:, None] < value) & (value < limits.high[:, None]), axis=2)
    apart = np.abs(value[:, None] - value) / np.hypot(errors[:, None], errors)
    assert not np.any(inside & inside.T & (apart.max(axis=2) > 4))


def test_orders_that_leave_little_of_the_prior_are_left_out():
    """50 points within a beam: a fit of all orders finds no start."""
    sources = crowd(50, (1, 1), 0.04)
    limits = limits_of(sources, ARCMIN)
    assert limits.orders == ()
    assert len(limits.exchangeable) > 50
    assert propose(sources, CENTRE, 1e8, beam_size=ARCMIN).constraints == ()


def test_windows_of_equal_rows_make_the_image_of_all():
    """Two windows in one gridder; each gridder holds 1e-5 of the peak."""
    (part,) = observed(BLOBS, n_row=300).partitions
    half = [
        dataclasses.replace(
            part,
            spw_id=i,
            vis=part.vis[:, [i]],
            weight=part.weight[:, [i]],
            chan_freq=part.chan_freq[[i]],
            chan_width=part.chan_width[[i]],
        )
        for i in range(2)
    ]
    windows = dataclasses.replace(observed(BLOBS, n_row=300), partitions=tuple(half))
    options = {"cell": "1 arcmin", "size": 64}
    whole = biro.image(windows, progress=False, **options)
    assert np.allclose(
        ResidualImages(windows, options).blank.dirty, whole.dirty, atol=3e-5 * whole.peak.value
    )
