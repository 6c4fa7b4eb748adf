"""Posterior: tables, circular statistics, files that ArviZ opens, comparison."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
from gaussian_likelihood import Flat, SmoothGaussian

from biro.errors import InputError
from biro.inference.posterior.comparison import TIED, compare
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.samples import Provenance
from biro.inference.posterior.statistics import quantiles, r_hat
from biro.inference.samplers.sampling import sample
from biro.models.quantities.parameter import Column


def posterior(seed=1, n=4000, *, weighted=False, **about):
    """Normal samples: a = 3 +- 0.5, pa = 179 +- 3 deg around the circle of 180 deg."""
    rng = np.random.default_rng(seed)
    samples = np.stack([rng.normal(3, 0.5, n), np.mod(rng.normal(179, 3, n), 180)], axis=1)
    log_weight = np.where(np.arange(n) % 2 == 0, np.log(2.0), np.log(1.0)) if weighted else None
    columns = (Column("a/flux", "Jy", "", "uniform"), Column("pa", "deg", "", "uniform", 180.0))
    values = {
        "columns": columns,
        "samples": samples,
        "log_likelihood": -0.5 * ((samples[:, 0] - 3) / 0.5) ** 2,
        "log_prior": np.zeros(n),
        "log_weight": log_weight,
        "effective": np.full(2, float(n)),
        "provenance": Provenance(
            "emcee", seed, {"n_walker": 8}, "d" * 64, "m" * 64, "# toml", {"emcee": "3"}
        ),
    }
    return Posterior(**(values | about))


def test_intervals_of_a_normal_and_of_one_around_the_circle():
    table = posterior(n=40_000).summary()
    row, angle = table["a/flux"], table["pa"]
    # Quantile errors are sigma sqrt(p (1 - p)) / (density sqrt(n)): below 0.014 sigma at 2.5 %; four of them.
    assert [row.low_95, row.low_68, row.median, row.high_68, row.high_95] == pytest.approx(
        [3 - 0.98, 2.5, 3, 3.5, 3 + 0.98], abs=0.03
    )
    assert [angle.low_68, angle.median, angle.high_68] == pytest.approx([176, 179, 182], abs=0.17)
    assert angle.high_95 > 180
    json.dumps(table.to_dict())
    assert "a/flux" in str(table)


def test_weighted_quantiles_are_those_of_repeated_samples():
    rng = np.random.default_rng(0)
    values, count = rng.normal(size=2000), rng.integers(1, 5, 2000)
    levels = (0.1, 0.5, 0.9)
    found = quantiles(values, count / count.sum(), levels)
    # Two definitions of a quantile of 5000 numbers differ by one spacing, about 1e-3.
    assert found == pytest.approx(np.quantile(np.repeat(values, count), levels), abs=5e-3)


@pytest.mark.parametrize(
    ("density", "at_end"),
    [
        (lambda rng, n: np.abs(rng.normal(0, 0.5, n)), "lower"),  # its slope is 0 there: the least of all
        (lambda rng, n: 10 - rng.exponential(0.3, n), "upper"),
        (lambda rng, n: rng.uniform(0, 10, n), ""),  # the data say nothing
        (lambda rng, n: 10 * rng.beta(1.2, 1.2, n), ""),  # nearly nothing
        (lambda rng, n: 1.0 + rng.normal(0, 0.5, n).clip(-0.99), ""),  # two sigma from the end
        (lambda rng, n: rng.normal(5, 0.5, n), ""),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_posterior_that_its_prior_cuts_off_is_named(density, at_end, weighted):
    n = 4000  # fractions of 12 and 7 % to 0.5 %; the limit is 10
    one = posterior(n=n, weighted=weighted)
    samples = one.samples.copy()
    samples[:, 0] = density(np.random.default_rng(3), n)
    columns = (replace(one.columns[0], low=0.0, high=10.0), one.columns[1])
    table = replace(one, samples=samples, columns=columns).summary()
    assert (table["a/flux"].at_end, table["pa"].at_end) == (at_end, "")
    assert (f" LIMIT: a/flux is most probable at the {at_end}" in str(table)) == bool(at_end)
    # Without an end there is nothing to be cut off by.
    assert replace(one, samples=samples).summary()["a/flux"].at_end == ""


@pytest.mark.parametrize("sampler", ["none", "emcee", "dynesty", "nuts"])
def test_samplers_name_what_a_prior_cuts_off(sampler):
    """As where mJy are written for Jy: the best value is far above the prior."""
    if sampler == "nuts":
        pytest.importorskip("nutpie", reason="nutpie is not installed")
    flux, east = Flat(0.0, 10.0, "a.I", "mJy"), Flat(-2.0, 2.0, "a.east", "arcsec")
    angle = Flat(0.0, 180.0, "a.pa", "deg", 180.0)
    likelihood = SmoothGaussian([flux, east, angle], [60.0, 0.3, 0.5], np.diag([25.0, 0.01, 1.0]))
    options = {"nuts": {"n_draw": 400, "n_tune": 200}, "dynesty": {"n_live": 100}}.get(sampler, {})
    found = sample(likelihood, sampler, seed=1, progress=False, **options)
    assert [(c.low, c.high) for c in found.columns] == [(0.0, 10.0), (-2.0, 2.0), (None, None)]
    # a.pa is at the end of its range, which is no end: it goes on round the circle.
    assert [row.at_end for row in found.summary().rows] == ["upper", "", ""]
    # The likelihood is 60 +- 5 mJy: 10 sigma above the limit.
    (line,) = [line for line in found.summary().warnings() if "CUT OFF" in line]
    assert line.startswith("PRIOR AND DATA DISAGREE: a.I is CUT OFF at the upper limit of its prior, 10 mJy")
    assert "by 10 sigma" in line


def test_a_file_of_before_ends_were_kept_is_read(tmp_path):
    one = posterior()
    one.save(tmp_path / "p.nc")
    with h5py.File(tmp_path / "p.nc", "r+") as file:
        found = []
        file.visit(lambda name: found.append(name) if name.endswith("/record") else None)
        (name,) = found
        record = json.loads(file[name][:].tobytes())
        for column in record["columns"]:
            del column["low"], column["high"]
        del file[name]
        file[name] = np.frombuffer(json.dumps(record).encode(), dtype=np.uint8)
    assert Posterior.load(tmp_path / "p.nc").columns == one.columns


def test_a_posterior_is_shown_in_one_line():
    assert repr(posterior()) == (
        "<Posterior: 4000 samples of 2 parameters, sampler emcee; summary() is its table>"
    )


def test_equal_weight_has_the_right_mean_and_repeats():
    weighted = posterior(weighted=True)
    equal = weighted.equal_weight(9000)
    again = weighted.equal_weight(9000)
    assert np.array_equal(equal.samples, again.samples)
    assert equal.log_weight is None
    # Systematic resampling: the mean is that of the weights to about one sample in n.
    assert equal["a/flux"].mean() == pytest.approx(weighted.weight @ weighted.samples[:, 0], abs=1e-3)


def test_draws_of_a_parameter_have_the_mean_and_width_of_the_posterior():
    """Draws spread evenly over 0 to 10 with the weights of a normal 4 +- 1, as nested sampling has them."""
    n = 20_000
    x = (np.arange(n) + 0.5) * 10.0 / n
    weighted = posterior(n=n, samples=np.stack([x, 2.0 * x + 1.0], axis=1), log_weight=-0.5 * (x - 4.0) ** 2)
    values = weighted["a/flux"]
    # (sum w)^2 / sum w^2 draws of a normal of width s among n spread over 10: n 2 sqrt(pi) s / 10.
    assert len(values) == pytest.approx(n * 2.0 * np.sqrt(np.pi) / 10.0, rel=1e-3)
    # Five errors of the mean and of the standard deviation of 7090 draws; evenly spread ones give 5 +- 2.9.
    assert values.mean() == pytest.approx(4.0, abs=0.06)
    assert values.std() == pytest.approx(1.0, abs=0.042)
    np.testing.assert_array_equal(weighted["a/flux"], values)
    np.testing.assert_array_equal(weighted["pa"], 2.0 * values + 1.0)  # rows belong together
    np.testing.assert_array_equal(weighted.equal_weight()["a/flux"], values)
    draws, weight = weighted.weighted_draws("a/flux")
    np.testing.assert_array_equal(draws, x)
    # Sums of a smooth function over a fine grid are the integrals, but for its cut at 0, 4 sigma away.
    assert weight @ draws == pytest.approx(4.0, abs=1e-3)
    assert weight @ (draws - 4.0) ** 2 == pytest.approx(1.0, abs=1e-3)


def test_draws_that_count_alike_are_those_of_the_sampler():
    plain = posterior()
    np.testing.assert_array_equal(plain["a/flux"], plain.samples[:, 0])
    draws, weight = plain.weighted_draws("a/flux")
    np.testing.assert_array_equal(draws, plain["a/flux"])
    assert weight == pytest.approx(np.full(4000, 1 / 4000))
    for access in (plain.__getitem__, plain.weighted_draws):
        with pytest.raises(InputError, match="no parameter 'c'; there are a/flux, pa"):
            access("c")


@pytest.mark.parametrize("weighted", [False, True])
def test_saved_and_loaded_is_equal(tmp_path, weighted):
    first = posterior(
        weighted=weighted, n_walker=8, tau=np.array([4.0, 5.0]), log_evidence=-3.5, log_evidence_err=0.1
    )
    first.save(tmp_path / "p.nc")
    second = Posterior.load(tmp_path / "p.nc")
    for name in ("samples", "log_likelihood", "log_prior", "effective", "tau"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert np.array_equal(first.weight, second.weight)
    assert (second.columns, second.provenance, second.n_walker) == (first.columns, first.provenance, 8)
    assert second.log_evidence == -3.5
    assert str(first.summary()) == str(second.summary())


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
@pytest.mark.parametrize("weighted", [False, True])
def test_arviz_and_xarray_open_it(tmp_path, engine, weighted):
    import arviz

    one = posterior(weighted=weighted, n_walker=1 if weighted else 8)
    one.save(tmp_path / "p.nc")
    data = arviz.from_netcdf(str(tmp_path / "p.nc"), engine=engine)
    values = np.asarray(data["posterior"]["a|flux"])
    assert values.shape[0] == (1 if weighted else 8)
    assert data["posterior"]["a|flux"].attrs["units"] == "Jy"
    equal = one.equal_weight()
    assert np.array_equal(values.T.ravel(), equal["a/flux"])
    assert {"lp", "log_likelihood_total"} <= set(data["sample_stats"].data_vars)


@pytest.mark.parametrize(
    ("sampler", "library"), [("nuts", "nutpie"), ("dynesty-dynamic", "dynesty"), ("emcee", "emcee")]
)
def test_the_file_names_the_library_and_its_version(tmp_path, sampler, library):
    import arviz

    about = Provenance(sampler, 1, {}, "d" * 64, "m" * 64, "# toml", {library: "1.2.3"})
    posterior(provenance=about).save(tmp_path / "p.nc")
    attributes = arviz.from_netcdf(str(tmp_path / "p.nc"))["posterior"].attrs
    assert attributes["inference_library"] == library
    assert attributes["inference_library_version"] == "1.2.3"


def test_what_is_no_posterior_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        Posterior.load(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(InputError, match="not a posterior"):
        Posterior.load(tmp_path / "text.nc")
    with h5py.File(tmp_path / "other.nc", "w") as file:
        file["x"] = 1
    with pytest.raises(InputError, match="no posterior of format"):
        Posterior.load(tmp_path / "other.nc")
    posterior().save(tmp_path / "cut.nc")
    with h5py.File(tmp_path / "cut.nc", "a") as file:
        del file["biro/log_prior"]
        file["biro/log_prior"] = np.zeros(3)
    with pytest.raises(InputError, match="log_prior must have shape"):
        Posterior.load(tmp_path / "cut.nc")


def test_shapes_that_do_not_belong_together_are_refused():
    with pytest.raises(InputError, match="steps of 7 walkers"):
        posterior(n_walker=7)
    with pytest.raises(InputError, match="names must differ"):
        posterior(columns=(Column("a"), Column("a")))
    with pytest.raises(InputError, match="no parameter 'b'"):
        posterior()["b"]


def test_r_hat_of_runs_that_agree_and_of_runs_that_do_not():
    same = r_hat([posterior(seed=s) for s in (1, 2, 3)])
    # For independent samples R - 1 is about 1 / n.
    assert same["a/flux"] == pytest.approx(1.0, abs=3e-3)
    assert same["pa"] == pytest.approx(1.0, abs=3e-3)
    moved = posterior(seed=4)
    moved = replace(moved, samples=moved.samples + np.array([1.0, 0.0]))
    # Means 1 apart, variance 1/4: B/n = 1/2, so R = sqrt(1 + 2).
    assert r_hat([posterior(seed=1), moved])["a/flux"] == pytest.approx(np.sqrt(3.0), rel=0.05)
    with pytest.raises(InputError, match="same seed"):
        r_hat([posterior(seed=1), posterior(seed=1)])
    with pytest.raises(InputError, match="at least 2"):
        r_hat([posterior()])


def test_comparison_orders_and_propagates_errors():
    models = {
        "point": posterior(log_evidence=-120.0, log_evidence_err=0.3),
        "gaussian": posterior(log_evidence=-100.0, log_evidence_err=0.4),
        "two": posterior(log_evidence=-102.0, log_evidence_err=0.3),
    }
    table = compare(models)
    assert [s.name for s in table.standings] == ["gaussian", "two", "point"]
    assert table["two"].log_bayes_factor == -2.0
    assert table["two"].log_bayes_factor_err == pytest.approx(0.5)
    assert table["two"].verdict == "not decided"  # 2.0 +- 0.5: within two errors of 1
    assert table["point"].verdict == "very strong"
    assert table["gaussian"].verdict == "best model"
    sure = {name: replace(each, log_evidence_err=0.1) for name, each in models.items()}
    assert compare(sure)["two"].verdict == "positive"
    # ln B of -0.5 +- 0.14 is certainly above -1, and 0 where the evidences are equal.
    for height in (-100.5, -100.0):
        equal = compare({**sure, "two": replace(sure["two"], log_evidence=height)})
        assert equal["two"].verdict == TIED
        assert "do not prefer the best model" in str(equal)
    assert json.loads(json.dumps(table.to_dict()))["best"] == "gaussian"
    assert "gaussian" in str(table)
    assert compare(list(models.values())).best == "2"


def test_a_comparison_shows_the_warnings_of_its_runs_and_decides_nothing_from_them():
    good = posterior(log_evidence=-100.0, log_evidence_err=0.1)
    for diagnostics in ({"pareto_k": 0.9}, {"missed_mass": 0.05}, {"converged": 0.0}):
        bad = posterior(log_evidence=-120.0, log_evidence_err=0.1, diagnostics=diagnostics)
        table = compare({"good": good, "bad": bad})
        assert table["bad"].verdict == "not decided"
        assert "-120.00?" in str(table)
        assert "-100.00?" not in str(table)
    # A tail that a tempered run has covered is not warned of, and decides nothing either.
    covered = posterior(
        log_evidence=-120.0, log_evidence_err=0.1, diagnostics={"pareto_k": 0.9, "covered": 1.0}
    )
    assert compare({"good": good, "bad": covered})["bad"].verdict == "very strong"
    noted = replace(bad, remarks=("errors are 1.4 times too small",))
    assert "bad: errors are 1.4 times too small" in compare({"good": good, "bad": noted}).warnings()


def test_comparison_refuses_what_cannot_be_compared():
    good = posterior(log_evidence=-1.0, log_evidence_err=0.1)
    other = replace(good, provenance=replace(good.provenance, data_digest="e" * 64))
    with pytest.raises(InputError, match="other data"):
        compare({"a": good, "b": other})
    with pytest.raises(InputError, match="no evidence"):
        compare({"a": good, "b": posterior()})
    with pytest.raises(InputError, match="at least 2"):
        compare({"a": good})
