"""Completeness and reliability of catalogues of simulated fields."""

from pathlib import Path

import numpy as np
import pytest
from population_draws import BEAM, WIDTH, Truth, make_draws, random_rows
from scipy import stats

from biro.errors import InputError
from biro.source_finding.populations.results.catalogue import Catalogue, make_catalogue
from biro.source_finding.populations.results.completeness import TrueSources, measure_completeness
from biro.source_finding.populations.results.pictures import draw_completeness


def catalogue_of(sources: list[Truth]) -> Catalogue:
    """The catalogue of 100 draws in which each source exists in exactly the part `p`."""
    rows = [[source for source in sources if i < 100 * source.p] for i in range(100)]
    return make_catalogue(make_draws(rows), (0.0, 0.0), BEAM, 100.0)


def truth_of(*sources: tuple[float, float, float]) -> TrueSources:
    east, north, flux = np.array(sources).reshape(-1, 3).T
    return TrueSources(east * WIDTH, north * WIDTH, flux)


def test_shares_have_the_binomial_intervals() -> None:
    """One field of four true sources: two are found, one has an entry of P = 0.3, and one has none."""
    truth = truth_of((0, 0, 1.0), (5, 0, 1.0), (0, 5, 0.1), (5, 5, 0.1))
    found = catalogue_of([Truth(0, 0, 1.0), Truth(5, 0, 1.0), Truth(0, 5, 0.1, 0.3), Truth(-5, -5, 0.5, 0.9)])
    result = measure_completeness([(truth, found)], 0.5 * WIDTH, [0.05, 0.5, 2.0])
    assert result.completeness.share.tolist() == [0.0, 1.0]
    assert result.completeness.n.tolist() == [2, 2]
    # Jeffreys: Beta(1/2, 5/2) of none of two, whose lower end is 0.
    assert result.completeness.low.tolist()[0] == 0.0
    assert result.completeness.high[0] == pytest.approx(stats.beta.ppf(0.8413447460685429, 0.5, 2.5))
    assert result.completeness.low[1] == pytest.approx(1.0 - result.completeness.high[0])
    # Entries with P = 0.3 (true), 0.9 (false), 1 and 1 (true).
    assert result.reliability.n.tolist() == [0, 1, 0, 0, 1, 2]
    assert result.reliability.found.tolist() == [0, 1, 0, 0, 0, 2]
    assert result.reliability.expected[[1, 4, 5]] == pytest.approx([0.3, 0.9, 1.0])
    assert np.isnan(result.reliability.share[0])
    low = measure_completeness([(truth, found)], 0.5 * WIDTH, [0.05, 0.5, 2.0], least=0.2)
    assert low.completeness.found.tolist() == [1, 2]


def test_one_entry_matches_one_source_alone() -> None:
    """Two true sources within the radius of one entry, and as many matches as there can be."""
    truth = truth_of((-0.2, 0, 1.0), (0.2, 0, 1.0))
    result = measure_completeness([(truth, catalogue_of([Truth(0, 0, 2.0)]))], WIDTH, [0.5, 2.0])
    assert result.completeness.found.tolist() == [1]
    # The nearest of both would take the only source of the other.
    chain = truth_of((0.0, 0, 1.0), (0.9, 0, 1.0))
    entries = catalogue_of([Truth(0.6, 0, 1.0, 1.0, 0.01), Truth(1.5, 0, 1.0, 1.0, 0.01)])
    result = measure_completeness([(chain, entries)], 0.7 * WIDTH, [0.5, 2.0])
    assert result.completeness.found.tolist() == [2]
    assert result.reliability.found.tolist()[-1] == 2


def test_right_probabilities_are_reliable() -> None:
    """Fields whose sources exist with the probability that draws give: shares agree with P."""
    rng = np.random.default_rng(0)
    places = [(x, y) for x in (-6.0, -2.0, 2.0, 6.0) for y in (-6.0, -2.0, 2.0, 6.0)]
    fields = []
    for seed in range(25):
        sources = [Truth(x, y, 1.0, rng.uniform(0.1, 1.0)) for x, y in places]
        rows = random_rows(sources, 100, seed)
        exists = [(s.east, s.north, s.flux) for s in sources if rng.random() < s.p]
        fields.append((truth_of(*exists), make_catalogue(make_draws(rows), (0.0, 0.0), BEAM, 100.0)))
    result = measure_completeness(fields, 0.5 * WIDTH, [0.5, 2.0])
    part = result.reliability
    has = part.n > 0
    error = np.sqrt(part.expected * (1.0 - part.expected) / np.maximum(part.n, 1))
    # Four binomial errors, and 0.01 for the bin up to 1 whose mean is nearly 1.
    assert (np.abs(part.share - part.expected) < 4.0 * error + 0.01)[has].all()
    assert part.n.sum() == sum(len(catalogue) for _, catalogue in fields)


def test_tables_and_pictures(tmp_path: Path) -> None:
    truth = truth_of((0, 0, 1.0), (5, 0, 1.0))
    result = measure_completeness([(truth, catalogue_of([Truth(0, 0, 1.0)]))] * 10, WIDTH)
    assert "10 fields" in str(result)
    result.write(tmp_path / "completeness.csv")
    table = np.genfromtxt(tmp_path / "completeness.csv", delimiter=",", names=True, dtype=None, encoding=None)
    assert table["share"][0] == 0.5
    figure = draw_completeness(result)
    assert len(figure.axes) == 2
    assert result.to_dict()["n_field"] == 10


def test_bad_input_is_refused() -> None:
    field = (truth_of((0, 0, 1.0)), catalogue_of([Truth(0, 0, 1.0)]))
    with pytest.raises(InputError, match="at least one simulated field"):
        measure_completeness([], WIDTH)
    with pytest.raises(InputError, match="radius: an angle above 0"):
        measure_completeness([field], 0.0)
    with pytest.raises(InputError, match="edges: fluxes that ascend"):
        measure_completeness([field], WIDTH, [1.0, 1.0])
    with pytest.raises(InputError, match="no true source"):
        measure_completeness([(truth_of(), field[1])], WIDTH)
    with pytest.raises(InputError, match="one shape"):
        TrueSources(np.zeros(2), np.zeros(2), np.zeros(3))
