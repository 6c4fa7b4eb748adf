"""Number of sources, catalogue and confusion against draws whose truth is known."""

import itertools
import math
import time

import numpy as np
import pytest
from population_draws import BEAM, WIDTH, Truth, make_draws, random_rows
from scipy import stats

from biro.errors import InputError
from biro.imaging.psf import RestoringBeam
from biro.source_finding.populations.results.catalogue import Catalogue, Entry, make_catalogue
from biro.source_finding.populations.results.draws import SourceDraws
from biro.source_finding.populations.results.features import in_beams
from biro.source_finding.populations.results.mixture import Pairs, Problem, assign
from biro.source_finding.populations.results.moves import has_valley
from biro.source_finding.populations.results.number import number_probability
from biro.source_finding.populations.results.result import PopulationResult
from biro.source_finding.populations.results.uncertainty import estimate, mean_error, probability_error

CENTRE = (1.0, 0.5)
THREE = (Truth(-5.0, 0.0, 1.0), Truth(0.0, 3.0, 0.5, 0.6, 0.1), Truth(4.0, 4.0, 0.2, 0.1, 0.2))


def catalogue_of(draws: SourceDraws, least: float = 0.05) -> Catalogue:
    return make_catalogue(draws, CENTRE, BEAM, float(draws.n_draw), least=least)


def nearest(catalogue: Catalogue, east: float, north: float = 0.0) -> Entry:
    return min(
        catalogue,
        key=lambda e: math.dist((e.east.median / WIDTH, e.north.median / WIDTH), (east, north)),
    )


def test_sources_apart_exist_as_often_as_draws_have_them() -> None:
    rows = random_rows(THREE, 2000)
    draws = make_draws(rows)
    catalogue = catalogue_of(draws)
    assert [entry.name for entry in catalogue] == ["field_1", "field_2", "field_3"]
    for entry, truth in zip(catalogue, THREE, strict=True):  # both brightest first
        # Scatter is 25 times smaller than distances, so that only tails beyond a beam could be missed.
        assert entry.n_draw == sum(truth in row for row in rows)
        # Four binomial errors; the first exists always, to the error that no draw can lower.
        assert abs(entry.probability - truth.p) < 4.0 * entry.error
        # Four errors of the median, which is 1.25 times that of the mean.
        slack = 4.0 * 1.25 * truth.scatter / math.sqrt(entry.n_draw)
        assert abs(entry.east.median / WIDTH - truth.east) < slack
        assert abs(entry.north.median / WIDTH - truth.north) < slack
        assert abs(math.log(entry.flux.median / truth.flux)) < 4.0 * 1.25 * 0.1 / math.sqrt(entry.n_draw)
        # A standard deviation from the 68 % interval of n draws is known to 1 / sqrt(n); four of these.
        assert entry.east.error / WIDTH == pytest.approx(truth.scatter, rel=4.0 / math.sqrt(entry.n_draw))
    assert catalogue.confusion == ()
    assert catalogue.n_other == 0.0


def test_probabilities_and_others_add_up_to_the_mean_number() -> None:
    clutter = [Truth(x, y, 0.02, 0.002) for x in np.linspace(-9, 9, 10) for y in np.linspace(-9, 9, 10)]
    draws = make_draws(random_rows([*THREE, *clutter], 1000))
    catalogue = catalogue_of(draws)
    assert len(catalogue) == 3
    assert catalogue.n_other > 0.0
    total = sum(entry.probability for entry in catalogue) + catalogue.n_other
    assert total == pytest.approx(draws.number.mean(), rel=1e-12)  # rounding of a sum


@pytest.mark.parametrize("scatter", [0.05, 0.1, 0.15])
def test_two_sources_half_a_beam_apart_keep_their_labels(scatter: float) -> None:
    rows = [[Truth(-0.25, 0.0, 1.0, 1.0, scatter), Truth(0.25, 0.0, 1.0, 1.0, scatter)]] * 1000
    catalogue = catalogue_of(make_draws(rows))
    assert [entry.probability for entry in catalogue] == [1.0, 1.0]
    for east in (-0.25, 0.25):
        entry = nearest(catalogue, east)
        # Five errors of the median, and a tenth of the scatter for labels that noise exchanges.
        slack = 5.0 * 1.25 * scatter / math.sqrt(1000) + 0.1 * scatter
        assert abs(entry.east.median / WIDTH - east) < slack
        assert entry.north.error / WIDTH == pytest.approx(scatter, rel=0.13)


def test_exchanged_labels_are_stated() -> None:
    """Two equal sources d apart with the scatter s each differ by d +- sqrt(2) s.

    Labels are right with the probability 1 / (1 + exp(-d x / s^2)) for a difference x, so that the mean
    probability of exchange is about that of a wrong order, Phi(-d / (sqrt(2) s)).
    """
    scatter, distance = 0.2, 0.5
    rows = [[Truth(0.0, 0.0, 1.0, 1.0, scatter), Truth(distance, 0.0, 1.0, 1.0, scatter)]] * 4000
    (confusion,) = catalogue_of(make_draws(rows)).confusion
    expected = float(stats.norm.cdf(-distance / (math.sqrt(2.0) * scatter)))
    assert confusion.kind == "blend"
    # Entries are narrower than the truth by the exchanges themselves, Student's t is wider: a factor of 2.
    assert 0.5 * expected < confusion.exchanged < 2.0 * expected
    assert confusion.number[2] == 1.0
    assert confusion.merged == 0.0
    assert "Which is which" in str(confusion)


def test_a_source_in_place_of_two_is_stated_with_its_probability() -> None:
    rng = np.random.default_rng(1)
    is_pair = rng.random(2000) < 0.6
    pair = [Truth(-0.25, 0.0, 1.0), Truth(0.25, 0.0, 1.0)]
    catalogue = catalogue_of(make_draws([pair if each else [Truth(0.0, 0.0, 2.0)] for each in is_pair]))
    (confusion,) = catalogue.confusion
    assert len(confusion.names) == len(catalogue) == 3
    share = float(is_pair.mean())
    # Places are five standard deviations apart: of a thousand draws a few are on the wrong side.
    assert confusion.number[2] == pytest.approx(share, abs=0.005)
    assert confusion.merged == pytest.approx(1.0 - share, abs=0.005)
    for entry, p in zip(catalogue, (1.0 - share, share, share), strict=True):
        assert entry.probability == pytest.approx(p, abs=0.005)
    # Two fluxes of 1 Jy +- 10 % are 2 +- 0.14 Jy together, one of 2 Jy has +- 0.2; five errors of medians.
    assert confusion.flux[2].median == pytest.approx(2.0, abs=0.03)
    assert confusion.flux[1].median == pytest.approx(2.0, abs=0.05)
    assert f"place of two in {100 * confusion.merged:.0f} %" in str(confusion)


def test_a_neighbour_that_is_not_there_is_no_blend() -> None:
    """The one that is left keeps its own flux: it stands for itself."""
    rows = random_rows([Truth(0.0, 0.0, 1.0), Truth(0.5, 0.0, 0.8, 0.6)], 2000)
    (confusion,) = catalogue_of(make_draws(rows)).confusion
    assert confusion.number[1] == pytest.approx(np.mean([len(row) == 1 for row in rows]))
    # 1.8 Jy +- 0.13 together against 1 +- 0.1: they overlap where one in some thousand is.
    assert confusion.merged < 0.01


def test_fluxes_of_which_the_data_measure_the_sum_are_named() -> None:
    """Both exist in all draws, with fluxes 1 +- 0.2 whose sum is 2 +- 0.02."""
    draws = make_draws([[Truth(-0.25, 0.0, 1.0), Truth(0.25, 0.0, 1.0)]] * 2000)
    rng = np.random.default_rng(11)
    change, total = 0.2 * rng.standard_normal(2000), 2.0 + 0.02 * rng.standard_normal(2000)
    first = draws.east < 0.0
    flux = 0.5 * total[draws.draw] + np.where(first, 1.0, -1.0) * change[draws.draw]
    anti = SourceDraws("field", ("point",), 2000, draws.draw, draws.kind, dict(draws.values) | {"I": flux})
    (confusion,) = catalogue_of(anti).confusion
    # -(0.04 - 0.0001) / (0.04 + 0.0001); the error of a correlation r is (1 - r^2) / sqrt(n).
    assert confusion.correlation == pytest.approx(-0.995, abs=0.002)
    assert confusion.number.tolist() == [0.0, 0.0, 1.0]
    assert confusion.flux[2].error == pytest.approx(0.02, rel=0.1)  # 1 / sqrt(2000), four of these
    assert "Use the sum" in str(confusion)
    assert catalogue_of(draws).confusion == ()  # fluxes that do not depend on each other


def test_alternatives_far_apart_are_named() -> None:
    """An alias: one place or another, never both."""
    rng = np.random.default_rng(2)
    at_first = rng.random(1000) < 0.7
    rows = [
        [Truth(-5.0, 0.0, 1.0) if each else Truth(5.0, 0.0, 1.0), Truth(0.0, 5.0, 1.0)] for each in at_first
    ]
    (confusion,) = catalogue_of(make_draws(rows)).confusion
    assert confusion.kind == "alternatives"
    assert confusion.number.tolist() == [0.0, 1.0, 0.0]
    assert str(confusion).startswith("ALTERNATIVES: field_")


def test_sources_all_over_the_field_are_no_entries() -> None:
    rng = np.random.default_rng(3)
    rows = [[Truth(*rng.uniform(-10, 10, 2), 0.1) for _ in range(rng.poisson(15))] for _ in range(500)]
    catalogue = catalogue_of(make_draws(rows))
    assert len(catalogue) == 0
    assert catalogue.n_other == pytest.approx(np.mean([len(row) for row in rows]))
    # Poisson: sqrt(15 / 500), known to 1 / sqrt(1000) of itself; four of these.
    assert catalogue.n_other_error == pytest.approx(math.sqrt(15.0 / 500.0), rel=0.13)


def test_faint_sources_everywhere_in_a_small_field_are_no_entries_either() -> None:
    """Fluxes far below the noise: ten sources of each draw lie anywhere in a field of 6 x 6 beams."""
    rng = np.random.default_rng(12)
    real = [Truth(-2.0, 0.0, 1.0), Truth(2.0, 1.0, 0.5, 0.8), Truth(0.6, 2.0, 0.3, 0.5, 0.1)]
    rows = random_rows(real, 1000)
    faint = [[Truth(*rng.uniform(-3, 3, 2), 0.02) for _ in range(rng.poisson(10))] for _ in rows]
    catalogue = catalogue_of(make_draws([row + more for row, more in zip(rows, faint, strict=True)]))
    # Their fluxes are 15 times larger, so that no faint source is taken for them but where tails meet.
    found = [entry.probability for entry in catalogue]
    assert found == pytest.approx([np.mean([one in row for row in rows]) for one in real], abs=0.003)
    assert catalogue.n_other == pytest.approx(np.mean([len(more) for more in faint]), abs=0.01)


def test_a_faint_source_among_others_is_found() -> None:
    rng = np.random.default_rng(4)
    rows = random_rows([Truth(2.0, -3.0, 0.1, 0.2, 0.1)], 1000)
    expected = np.mean([len(row) for row in rows])
    rows = [row + [Truth(*rng.uniform(-10, 10, 2), 0.1) for _ in range(rng.poisson(3))] for row in rows]
    (entry,) = catalogue_of(make_draws(rows))
    # Others lie within half a beam in 3 pi / 4 / 400 = 0.6 % of the draws.
    assert entry.probability == pytest.approx(expected, abs=0.012)


def test_a_rare_source_that_scatters_over_a_beam_is_found() -> None:
    rng = np.random.default_rng(1)
    rows = random_rows([Truth(0.0, 0.0, 0.1, 0.1, 0.4)], 2000, 3)
    expected = np.mean([len(row) for row in rows])
    rows = [row + [Truth(*rng.uniform(-10, 10, 2), 0.1) for _ in range(rng.poisson(2))] for row in rows]
    (entry,) = catalogue_of(make_draws(rows))
    # Beyond a beam lie exp(-1 / (2 0.4^2)) = 4 % of it; others lie within half a beam in 0.4 % of the draws.
    assert entry.probability == pytest.approx(expected, abs=0.012)


def test_a_core_and_its_halo_at_one_place_are_two() -> None:
    rng = np.random.default_rng(5)
    is_halo = np.tile([False, True], 500)
    values = {
        "east": WIDTH * np.where(is_halo, 0.2, 0.05) * rng.standard_normal(1000),
        "north": WIDTH * np.where(is_halo, 0.2, 0.05) * rng.standard_normal(1000),
        "I": np.exp(0.1 * rng.standard_normal(1000)),
        "emaj": np.where(is_halo, 5.0 * WIDTH * np.exp(0.1 * rng.standard_normal(1000)), np.nan),
        "emin": np.where(is_halo, 4.0 * WIDTH, np.nan),
        "pa": np.where(is_halo, 1.0, np.nan),
    }
    draws = SourceDraws(
        "field", ("point", "gaussian"), 500, np.repeat(np.arange(500), 2), is_halo.astype(np.int8), values
    )
    catalogue = catalogue_of(draws)
    assert [entry.probability for entry in catalogue] == [1.0, 1.0]
    assert sorted(entry.kind for entry in catalogue) == ["gaussian", "point"]
    assert all(max(entry.kinds.values()) == 1.0 for entry in catalogue)


def test_kinds_and_sizes_are_of_the_draws_that_have_them() -> None:
    rng = np.random.default_rng(6)
    n = 1000
    is_gaussian = rng.random(n) < 0.7
    # Position angles on both sides of north: 178 and 2 deg are 4 deg apart.
    pa = np.deg2rad(rng.normal(0.0, 3.0, n)) % np.pi
    values = {
        "east": WIDTH * 0.05 * rng.standard_normal(n),
        "north": WIDTH * 0.05 * rng.standard_normal(n),
        "I": np.exp(0.1 * rng.standard_normal(n)),
        "emaj": np.where(is_gaussian, WIDTH * (1.0 + 0.1 * rng.standard_normal(n)), np.nan),
        "emin": np.where(is_gaussian, 0.5 * WIDTH, np.nan),
        "pa": np.where(is_gaussian, pa, np.nan),
    }
    kind = is_gaussian.astype(np.int8)
    (entry,) = catalogue_of(SourceDraws("field", ("point", "gaussian"), n, np.arange(n), kind, values))
    assert entry.kinds == {
        "point": pytest.approx(1 - is_gaussian.mean()),
        "gaussian": pytest.approx(is_gaussian.mean()),
    }
    assert entry.is_extended
    # Errors of medians and intervals of 700 draws, four of them.
    assert entry.values["emaj"].median / WIDTH == pytest.approx(1.0, abs=0.02)
    assert entry.values["emaj"].error / WIDTH == pytest.approx(0.1, rel=0.16)
    off = (math.degrees(entry.values["pa"].median) + 90.0) % 180.0 - 90.0
    assert abs(off) < 4.0 * 1.25 * 3.0 / math.sqrt(700)
    assert math.degrees(entry.values["pa"].error) == pytest.approx(3.0, rel=0.16)


def test_a_wide_beam_is_turned_as_it_lies() -> None:
    """Sources 1.2 minor axes apart are blends along the major axis, four times as long, but not across."""
    rows = random_rows([Truth(-0.6, 0.0, 1.0), Truth(0.6, 0.0, 1.0, 0.5)], 500)
    draws = make_draws(rows)
    along = RestoringBeam(4.0 * WIDTH, WIDTH, np.pi / 2)  # major axis to the east
    across = RestoringBeam(4.0 * WIDTH, WIDTH, 0.0)
    assert len(make_catalogue(draws, CENTRE, along, 500.0).confusion) == 1
    assert len(make_catalogue(draws, CENTRE, across, 500.0).confusion) == 0


def test_places_in_beams_are_those_along_its_axes() -> None:
    """The major axis points to (sin pa, cos pa) in (east, north), the minor one is 90 deg on."""
    beam = RestoringBeam(3.0, 2.0, 0.4)
    ends = 3.0 * np.sin(0.4), 3.0 * np.cos(0.4)
    assert in_beams(np.array(ends[0]), np.array(ends[1]), beam) == pytest.approx([1.0, 0.0], abs=1e-15)
    ends = 2.0 * np.sin(0.4 + np.pi / 2), 2.0 * np.cos(0.4 + np.pi / 2)
    assert in_beams(np.array(ends[0]), np.array(ends[1]), beam) == pytest.approx([0.0, 1.0], abs=1e-15)


def test_a_source_with_two_fluxes_is_one() -> None:
    """It exists at its place in all draws, whatever its flux is."""
    rows = [[Truth(0.0, 0.0, 1.0 if i % 2 else 10.0)] for i in range(1000)]
    (entry,) = catalogue_of(make_draws(rows))
    assert entry.probability == 1.0
    assert entry.flux.low_68 < 1.2
    assert entry.flux.high_68 > 8.0


def test_a_source_more_than_a_beam_away_is_another_one() -> None:
    rows = [[Truth(1.5 if i % 50 == 0 else 0.0, 0.0, 1.0)] for i in range(1000)]
    catalogue = catalogue_of(make_draws(rows))
    assert [entry.probability for entry in catalogue] == [0.98]
    assert catalogue.n_other == pytest.approx(0.02)


def test_draws_without_sources() -> None:
    nothing = {key: np.zeros(0) for key in ("east", "north", "I")}
    draws = SourceDraws("field", ("point",), 400, np.zeros(0, np.int64), np.zeros(0, np.int8), nothing)
    result = PopulationResult(draws, CENTRE, BEAM, 400.0)
    number = result.number_probability()
    assert number.probability.tolist() == [1.0]
    # Standard deviation of Beta(400.5, 0.5).
    assert number.error[0] == pytest.approx(stats.beta.std(400.5, 0.5), rel=1e-12)
    assert (number.median, number.interval_95, number.mean) == (0, (0, 0), 0.0)
    assert number.mean_error > 0.0
    assert len(result.catalogue()) == 0
    assert result.probability_map().plane.sum() == 0.0
    assert "sources in no entry" in str(result)
    with pytest.raises(InputError, match="no source is probable enough"):
        result.model()


def test_a_single_draw_states_no_interval() -> None:
    draws = make_draws([[Truth(0.0, 0.0, 1.0), Truth(3.0, 0.0, 2.0)]])
    catalogue = catalogue_of(draws)
    assert [entry.probability for entry in catalogue] == [1.0, 1.0]
    for entry in catalogue:
        assert entry.error == pytest.approx(stats.beta.std(1.5, 0.5), rel=1e-12)
        assert math.isnan(entry.flux.error)
        assert math.isfinite(entry.flux.median)
    assert "?" in str(catalogue)


def test_sixty_sources_in_two_thousand_draws_take_seconds() -> None:
    rng = np.random.default_rng(7)
    truth = [
        Truth(x, y, 10.0 ** rng.uniform(-1, 1), rng.choice([0.1, 0.5, 0.9, 1.0]), 0.1)
        for x, y in itertools.product(np.linspace(-8, 8, 10), np.linspace(-5, 5, 6))
    ]
    rows = random_rows(truth, 2000)
    draws = make_draws(rows)
    start = time.process_time()
    catalogue = catalogue_of(draws)
    assert time.process_time() - start < 5.0
    for source in truth:
        entry = nearest(catalogue, source.east, source.north)
        assert entry.n_draw == sum(source in row for row in rows)


def test_a_catalogue_does_not_depend_on_the_order_of_sources_in_draws() -> None:
    rows = random_rows([*THREE, Truth(-4.5, 0.0, 0.7, 0.8)], 500)
    draws = make_draws(rows)
    back = np.concatenate([np.arange(a, b)[::-1] for a, b in itertools.pairwise(draws.first)])
    values = {key: array[back] for key, array in draws.values.items()}
    turned = SourceDraws("field", draws.types, draws.n_draw, draws.draw, draws.kind, values)
    assert str(catalogue_of(turned)) == str(catalogue_of(draws))


def test_the_assignment_is_the_best_of_all() -> None:
    """Against every way to assign the sources of a draw, source by source."""
    rng = np.random.default_rng(8)
    for _ in range(50):
        n_source, n_entry = rng.integers(1, 5, 2)
        gain = np.where(rng.random((n_source, n_entry)) < 0.7, rng.exponential(1.0, (n_source, n_entry)), 0.0)
        problem = Problem(np.zeros((n_source, 3)), np.zeros(n_source, np.int64), 1)
        source, entry = np.nonzero(gain)
        label = assign(problem, Pairs(source, entry, gain[source, entry]), int(n_entry))
        found = sum(gain[i, k] for i, k in enumerate(label) if k >= 0)
        used = label[label >= 0]
        assert len(set(used.tolist())) == len(used)
        ways = itertools.product(range(-1, n_entry), repeat=int(n_source))
        best = max(
            sum(gain[i, k] for i, k in enumerate(way) if k >= 0)
            for way in ways
            if len({k for k in way if k >= 0}) == sum(k >= 0 for k in way)
        )
        assert found == pytest.approx(best, rel=1e-12)


def test_a_valley_shows_from_four_standard_deviations_on() -> None:
    rng = np.random.default_rng(9)
    for distance, expected in ((3.0, False), (5.0, True)):
        middles = np.array([[0.0, 0.0], [distance, 0.0]])
        x = middles[rng.integers(0, 2, 5000)] + rng.standard_normal((5000, 2))
        assert has_valley(x, *middles) == expected


def test_numbers_have_exact_probabilities_and_intervals() -> None:
    number = np.repeat([0, 1, 2, 3, 4], [10, 20, 40, 20, 10])
    found = number_probability(number, 100.0)
    assert found.probability.tolist() == [0.1, 0.2, 0.4, 0.2, 0.1]
    assert found.error[2] == pytest.approx(stats.beta.std(40.5, 60.5), rel=1e-12)
    assert (found.median, found.most_probable, found.mean) == (2, 2, 2.0)
    # 10 % lie below 1, and 10 % above 3; of 95 % nothing can be left out.
    assert found.interval_68 == (1, 3)
    assert found.interval_95 == (0, 4)
    assert found.mean_error == pytest.approx(math.sqrt(1.2 / 100.0), rel=1e-12)  # variance 1.2
    # 16 % have 5, which is more than may be left out; no draw has a number in between.
    assert number_probability(np.repeat([0, 5], [84, 16]), 100.0).interval_68 == (0, 5)


def test_fewer_effective_draws_give_larger_errors() -> None:
    number = np.repeat([0, 1], [500, 500])
    many, few = (number_probability(number, n) for n in (1000.0, 10.0))
    # sqrt(p (1 - p) / (n + 2)) at p = 1/2.
    assert many.error[0] == pytest.approx(math.sqrt(0.25 / 1002.0), rel=1e-12)
    assert few.error[0] == pytest.approx(math.sqrt(0.25 / 12.0), rel=1e-12)
    assert mean_error(np.zeros(10), 10.0) == pytest.approx(math.sqrt(0.5) / 10.0)


@pytest.mark.parametrize(("p", "n"), [(0.0, 20.0), (1.0, 400.0), (0.3, 7.5)])
def test_the_error_of_a_probability_is_that_of_a_beta_distribution(p: float, n: float) -> None:
    expected = stats.beta.std(p * n + 0.5, n - p * n + 0.5)
    assert float(probability_error(p, n)) == pytest.approx(expected, rel=1e-12)


def test_an_interval_of_few_draws_holds_the_next_one_in_68_percent() -> None:
    rng = np.random.default_rng(10)
    for draws, more in ((rng.random((4000, 9)), 0.0), (rng.standard_normal((4000, 9)), 0.03)):
        intervals = [estimate(values[:8], 8.0) for values in draws]
        held = [one.low_68 < values[8] < one.high_68 for one, values in zip(intervals, draws, strict=True)]
        # Binomial error 0.0074, three of them; a normal distribution lies closer together in the middle.
        assert 0.6827 - 0.022 < np.mean(held) < 0.6827 + more + 0.022
    assert math.isnan(estimate(np.arange(5.0), 5.0).error)
    assert math.isfinite(estimate(np.arange(6.0), 6.0).error)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_draw": 0}, "n_draw: at least 1"),
        ({"draw": np.array([1, 0])}, "draw must ascend from 0 to 1"),
        ({"draw": np.array([0, 2])}, "draw must ascend from 0 to 1"),
        ({"kind": np.array([0, 1], np.int8)}, "kind must be an index of 1 types"),
        ({"kind": np.zeros(3, np.int8)}, r"kind must have shape \(2,\)"),
        ({"values": {"east": np.zeros(2), "north": np.zeros(2)}}, "I not given"),
        (
            {"values": dict.fromkeys(("east", "north", "I"), np.array([0.0, np.nan]))},
            "east must be finite, but 1",
        ),
    ],
)
def test_broken_draws_are_refused(change: dict[str, object], message: str) -> None:
    good = {"east": np.zeros(2), "north": np.zeros(2), "I": np.ones(2)}
    given = {"n_draw": 2, "draw": np.array([0, 1]), "kind": np.zeros(2, np.int8), "values": good} | change
    with pytest.raises(InputError, match=message):
        SourceDraws("field", ("point",), **given)  # type: ignore[arg-type]


def test_broken_results_are_refused() -> None:
    draws = make_draws([[Truth(0.0, 0.0, 1.0)]])
    with pytest.raises(InputError, match="n_effective: a number of draws above 0"):
        PopulationResult(draws, CENTRE, BEAM, 0.0)
    with pytest.raises(InputError, match="beam: a FWHM above 0"):
        PopulationResult(draws, CENTRE, RestoringBeam(1.0, 2.0, 0.0), 1.0)
    with pytest.raises(InputError, match=r"log_posterior must have shape \(1,\)"):
        PopulationResult(draws, CENTRE, BEAM, 1.0, np.zeros(2))
    with pytest.raises(InputError, match="least: a probability within 0"):
        PopulationResult(draws, CENTRE, BEAM, 1.0).catalogue(1.0)
    # More effective draws than draws cannot make errors smaller.
    assert PopulationResult(draws, CENTRE, BEAM, 50.0).n_effective == 1.0
