"""What stands beside an image: components with priors, and closures in place of visibilities.

Oracles are the posterior of a linear model in closed form, chi2 of an explicit set of closures, and skies
whose truth is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.linalg import null_space
from typer.testing import CliRunner

import biro
from biro.cli.app import app
from biro.errors import InputError
from biro.image_posterior.components import FreeComponents
from biro.image_posterior.field import ImageField
from biro.image_posterior.maps.fast_map import NO_ERRORS
from biro.image_posterior.maps.operator_beside import OperatorBeside
from biro.image_posterior.operator import ImageOperator, with_data
from biro.image_posterior.problem import ImageProblem
from biro.image_posterior.results.shared_flux import remarks_on_components
from biro.image_posterior.sampling import jax_room
from biro.models import GaussianSource, ImagePrior, Noise, Normal, PointSource, SkyModel
from biro.models.components.antenna_terms.gain import Gain
from biro.models.components.antenna_terms.per_segment import PerSegment
from biro.models.components.constraint import Order
from biro.models.quantities.prior import LogUniform, Uniform
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.simulation import Channels, Track
from biro.simulation.prediction import predict

ARCSEC = np.pi / 180.0 / 3600.0
N, CELL, NOISE = 16, 1.2e-4, 0.3
EAST, NORTH = 40.0, -25.0
FLUX, FLUX_SD = 2.0, 1.5
NOTHING = SkyModel([PointSource("nothing", east="0 arcsec", north="0 arcsec", I="0 Jy")])
CORE = SkyModel(
    [PointSource("core", east=f"{EAST} arcsec", north=f"{NORTH} arcsec", I=Normal(FLUX, FLUX_SD, "Jy"))]
)


def stokes_i(observation: biro.Observation) -> biro.Observation:
    return replace(observation, partitions=tuple(form_stokes(observation.partitions, PSEUDO_I)[0]))


def simulated(sky: SkyModel, noise: float = NOISE, seed: int = 1, hours: int = 4) -> biro.Observation:
    """KAT-7 once an hour: 21 visibilities each."""
    made = biro.simulate(
        "KAT-7",
        sky,
        phase_centre="12h00m00s -40d00m00s",
        times=Track("2026-03-01T20:00", hours * 3600.0, 3600.0),
        channels=Channels(1.4e9, 1e6),
        noise=noise,
        seed=seed,
        progress=False,
    )
    return stokes_i(made)


@pytest.fixture(scope="module")
def observation() -> biro.Observation:
    return simulated(NOTHING)


@pytest.fixture(scope="module")
def linear(observation: biro.Observation) -> SimpleNamespace:
    """Gaussian pixels and a core of unknown flux: data, design matrices, and the exact posterior."""
    (part,) = observation.partitions
    field = ImageField(N, CELL, part.phase_centre)
    operator = ImageOperator(observation, field, accuracy=1e-7, backend="cpu")
    used = part.weight[:, 0, 0] > 0
    l, m = (a.ravel() for a in np.meshgrid(-field.axis, field.axis))
    pixels, core = phasors(part, l, m)[used], phasors(part, *[np.array([x]) for x in _lm()])[used]
    matrix, column = (np.concatenate([a.real, a.imag]) for a in (pixels, core))
    y, x = np.indices((N, N))
    apart = np.hypot(y.ravel()[:, None] - y.ravel(), x.ravel()[:, None] - x.ravel())
    covariance = 0.1**2 * np.exp(-apart / 3.0)
    root = np.linalg.cholesky(covariance)
    rng = np.random.default_rng(5)
    sigma = float(part.weight[used].max()) ** -0.5
    truth = 0.05 + root @ rng.normal(size=N * N)
    data = matrix @ truth + 3.0 * column[:, 0] + sigma * rng.normal(size=len(matrix))
    vis = np.zeros(part.vis.shape, complex)
    vis[used, 0, 0] = data[: len(data) // 2] + 1j * data[len(data) // 2 :]
    weight = np.where(used[:, None, None], sigma**-2, 0.0)
    observed = replace(observation, partitions=(replace(part, vis=vis, weight=weight),))
    # The posterior of pixels and flux together, whose prior is normal.
    both = np.hstack([matrix, column])
    prior = np.zeros((N * N + 1, N * N + 1))
    prior[:-1, :-1], prior[-1, -1] = covariance, FLUX_SD**2
    mean = np.append(np.full(N * N, 0.05), FLUX)
    gain = prior @ both.T @ np.linalg.inv(both @ prior @ both.T + sigma**2 * np.eye(len(data)))
    return SimpleNamespace(
        observation=observed, operator=with_data(operator, [vis], [weight]), root=root, sigma=sigma,
        mean=mean + gain @ (data - both @ mean), covariance=prior - gain @ both @ prior,
        matrix=matrix, column=column[:, 0], data=data, free=FreeComponents(observed, CORE, "cpu"),
    )  # fmt: skip


def _lm() -> tuple[float, float]:
    """Direction cosines of the core: offsets are along great circles, to 1e-9 here."""
    return EAST * ARCSEC, NORTH * ARCSEC


def phasors(part: Any, l: np.ndarray, m: np.ndarray) -> np.ndarray:
    """exp(2 pi i (u l + v m + w (n - 1)) nu/c), (n_row, n_pixel) (physics: section 2)."""
    n_minus_1 = np.sqrt(1.0 - l**2 - m**2) - 1.0
    return np.exp(2j * np.pi * (part.uvw @ np.stack([l, m, n_minus_1])) * part.chan_freq[0] / 299792458.0)


class TestComponents:
    def test_residuals_are_those_of_the_best_flux_and_curvature_lacks_it(
        self, linear: SimpleNamespace
    ) -> None:
        nothing = [np.zeros(vis.shape, complex) for vis in linear.operator.data]
        operator = OperatorBeside(linear.operator, linear.free, nothing, 1.0, np.zeros(1))
        (left,) = operator.residuals(nothing)
        # The flux of a linear model with a normal prior, in closed form.
        power = linear.column @ linear.column / linear.sigma**2
        flux = (linear.column @ linear.data / linear.sigma**2 + FLUX / FLUX_SD**2) / (power + FLUX_SD**-2)
        seen = left[linear.operator.weights[0] > 0]
        expected = linear.data - flux * linear.column
        # The search ends at steps of 1e-8 of the flux.
        np.testing.assert_allclose(np.concatenate([seen.real, seen.imag]), expected, atol=1e-5)
        image = np.random.default_rng(1).normal(size=(N, N))
        taken = linear.matrix.T @ linear.column * (linear.column @ linear.matrix @ image.ravel())
        taken /= linear.sigma**4 * (power + FLUX_SD**-2)
        # 0.98 of it is taken (see `OperatorBeside`); the gridder is good to 1e-7 of its 2-norm.
        np.testing.assert_allclose(
            operator.absorbed(image).ravel(), 0.98 * taken, atol=1e-4 * np.abs(taken).max()
        )

    def test_a_fast_map_leaves_the_core_to_the_component(self) -> None:
        jet = GaussianSource("jet", east="0 arcsec", north="15 arcsec", I="3 Jy", fwhm="40 arcsec")
        core = PointSource("core", east="12 arcsec", north="-7 arcsec", I="1 Jy")
        data = biro.simulate(
            "VLA-C",
            SkyModel([core, jet]),
            phase_centre="12h00m00s +40d00m00s",
            times=Track("2026-03-01", 7200.0, 3600.0),
            channels=Channels(1.4e9, 5e7),
            noise=0.1,
            seed=3,
            progress=False,
        )
        place = Uniform(-30, 30, "arcsec")
        sky = SkyModel(
            [PointSource("core", east=place, north=place, I=Uniform(0, 10, "Jy"))],
            images=[ImagePrior("jet", prior="smooth", size=24, cell="6 arcsec")],
            noise=Noise(factor=1.0),
        )
        image = biro.fit_image(data, sky, progress=False, backend="cpu")
        found = {name: float(draws[0]) for name, draws in image.parameters.items()}
        # The image has pixels of a third of the beam, and shares some flux with the core.
        assert found["core.I"] == pytest.approx(1.0, abs=0.1)
        assert found["core.east"] == pytest.approx(12.0, abs=1.0)
        assert found["core.north"] == pytest.approx(-7.0, abs=1.0)
        assert image.flux.flux == pytest.approx(3.0, abs=0.2)
        assert image.total_chi2 < 1.2
        assert NO_ERRORS in str(image)
        assert image.to_dict()["facts"]["parameters"][2] == {
            "name": "core.I", "unit": "Jy", "mean": found["core.I"], "sd": None
        }  # fmt: skip

    def test_constraints_are_refused(self, observation: biro.Observation) -> None:
        two = [replace(CORE.sources[0], name=name) for name in ("a", "b")]
        sky = SkyModel(two, constraints=[Order(["a.I", "b.I"])])
        with pytest.raises(InputError, match=r"\[\[constraint\]\] cannot stand beside a fitted image"):
            FreeComponents(observation, sky, "cpu")

    def test_a_flux_that_only_the_sum_has_is_named(self, linear: SimpleNamespace) -> None:
        rng, at = np.random.default_rng(2), linear.free.visibilities(np.zeros(1))
        problem = ImageProblem(
            linear.observation, linear.operator, at, ImagePrior("i", prior="smooth"), CORE, 1.0, 1, True,
            free=linear.free, numbers=np.zeros(1),
        )  # fmt: skip
        xi = 0.5 * rng.normal(size=(16, 1))
        images = np.zeros((16, 1, N, N))
        # What the core gains, the image loses in the pixel of the core.
        y, x = round(NORTH * ARCSEC / CELL) + N // 2, N // 2 - round(EAST * ARCSEC / CELL)
        images[:, 0, y, x] = 5.0 - FLUX_SD * xi[:, 0]
        (line,) = remarks_on_components(problem, xi, images)
        assert line.startswith("SHARED FLUX: core.I")
        assert not remarks_on_components(
            problem, xi, np.zeros((16, 1, N, N)) + 0.1 * rng.normal(size=(16, 1, N, N))
        )
        far = remarks_on_components(problem, 5.0 + 1.0 * rng.normal(size=(16, 1)), images)
        assert "FAR FROM THE PRIOR: core.I (+" in far[0]
        assert "NOT DETERMINED BY THE DATA: core.I only repeat" in far[-1]


needs_jax = pytest.mark.skipif(
    any(find_spec(name) is None for name in jax_room.PACKAGES), reason="needs the extra images"
)


@needs_jax
class TestSamples:
    @pytest.fixture(autouse=True)
    def precision(self) -> Iterator[None]:
        with jax_room.double_precision():
            yield

    def test_flux_and_pixels_have_the_posterior_of_the_linear_model(self, linear: SimpleNamespace) -> None:
        from biro.image_posterior.sampling.draws import Settings
        from biro.image_posterior.sampling.jax_operator import UsedData
        from biro.image_posterior.sampling.models.component_model import ComponentModel
        from biro.image_posterior.sampling.models.visibility_model import VisibilityModel
        from biro.image_posterior.sampling.variational import sample

        prior = SimpleNamespace(
            n=N * N, lines=(), is_hyper=np.zeros(N * N, bool),
            image=lambda xi: 0.05 + (linear.root @ xi).reshape(N, N),
        )  # fmt: skip
        components = ComponentModel(linear.free, UsedData(linear.operator.weights))
        model = VisibilityModel(linear.operator, prior, components=components)
        settings = Settings(method="mgvi", n_samples=60, n_iterations=2, n_pairs=2, seed=3)
        draws = sample(model, np.zeros(model.n), settings)
        fluxes = np.array([components.theta(xi[model.at.components])[0] for xi in draws.samples])
        sd = np.sqrt(np.diag(linear.covariance))
        # As for images alone, the search ends within 0.2 sd of the exact mean.
        assert abs(fluxes.mean() - linear.mean[-1]) < 0.2 * sd[-1]
        # 30 independent pairs: the sd is good to 1 / sqrt(60), and three times that.
        assert fluxes.std() == pytest.approx(sd[-1], rel=0.4)
        # The image widens the error of 0.02 Jy of a core alone to 0.8 Jy; the prior has 1.5 Jy.
        assert linear.sigma / np.linalg.norm(linear.column) < 0.1 * sd[-1] < 0.06 * FLUX_SD
        total = np.array([prior.image(xi[model.at.sky]).sum() for xi in draws.samples])
        cross = linear.covariance[-1, :-1].sum()
        correlation = cross / sd[-1] / np.sqrt(linear.covariance[:-1, :-1].sum())
        # -0.9968; the error of a correlation of 30 pairs is (1 - rho^2) / sqrt(30) = 0.001.
        assert np.corrcoef(fluxes, total)[0, 1] == pytest.approx(correlation, abs=0.01)


def explicit(part: Any, vis: np.ndarray, fraction: float) -> tuple[float, int]:
    """chi2 and number of the closures of all times, from explicit sets A: chi2 = (A x)^T (A S A^T)^-1 A x.

    Closure phases are those of triangles with the first antenna; log amplitudes are all combinations of legs
    that antennas leave, and data are corrected by 2 h S' (conventions: section 7).
    """
    chi2, n = 0.0, 0
    for time in np.unique(part.time_index):
        rows = np.flatnonzero((part.time_index == time) & (part.weight[:, 0, 0] > 0))
        first, second = part.antenna1[rows], part.antenna2[rows]
        data, model = part.vis[rows, 0, 0], vis[rows, 0, 0]
        thermal = 1.0 / (part.weight[rows, 0, 0] * np.abs(data) ** 2)
        assert np.all(thermal < 1.0 / 9.0)
        variance, ratio = thermal + fraction**2, np.log(data / model)
        root = first.min()
        triangles = []
        for leg, (p, q) in enumerate(zip(first, second, strict=True)):
            if p != root:
                row = np.zeros(len(rows))
                row[leg] = 1.0
                row[np.flatnonzero((first == root) & (second == p))] = 1.0
                row[np.flatnonzero((first == root) & (second == q))] = -1.0
                triangles.append(row)
        phases = np.array(triangles)
        sums = np.array([(first == a) | (second == a) for a in np.unique([first, second])], float)
        amplitudes = null_space(sums).T
        seen = amplitudes.T @ np.linalg.solve(amplitudes * variance @ amplitudes.T, amplitudes)
        ratio -= 2.0 * variance * np.diag(seen) * thermal
        turned = np.angle(np.exp(1j * (phases @ ratio.imag)))
        for rows_of, x in ((phases, turned), (amplitudes, amplitudes @ ratio.real)):
            chi2 += float(x @ np.linalg.solve(rows_of * variance @ rows_of.T, x))
            n += len(x)
    return chi2, n


@needs_jax
class TestClosures:
    @pytest.fixture(autouse=True)
    def precision(self) -> Iterator[None]:
        with jax_room.double_precision():
            yield

    @pytest.fixture
    def double(self) -> biro.Observation:
        """Two sources 200 arcsec apart, 3 and 1 Jy, with gains that are wrong in phase and amplitude."""
        sky = SkyModel([
            PointSource("a", east="30 arcsec", north="20 arcsec", I="3 Jy"),
            PointSource("b", east="-90 arcsec", north="180 arcsec", I="1 Jy"),
        ])  # fmt: skip
        made = simulated(sky, noise=0.1, hours=8)
        (part,) = made.partitions
        rng = np.random.default_rng(3)
        shape = (part.time_index.max() + 1, part.n_antenna)
        gains = np.exp(0.3 * rng.normal(size=shape) + 2j * np.pi * rng.uniform(size=shape))
        product = gains[part.time_index, part.antenna1] * gains[part.time_index, part.antenna2].conj()
        weight = part.weight / np.abs(product[:, None, None]) ** 2
        return replace(
            made, partitions=(replace(part, vis=part.vis * product[:, None, None], weight=weight),)
        )

    def test_chi2_is_that_of_an_explicit_set_with_its_covariance(self, double: biro.Observation) -> None:
        from biro.image_posterior.sampling.jax_operator import UsedData, real_parts
        from biro.image_posterior.sampling.models.closure_model import ClosureModel

        (part,) = double.partitions
        used = UsedData([part.weight])
        model = ClosureModel(double, used, fraction=0.05, factor=2.0)
        sky = SkyModel([
            PointSource("a", east="0 arcsec", north="0 arcsec", I="3 Jy"),
            PointSource("b", east="-100 arcsec", north="120 arcsec", I="2 Jy"),
        ])  # fmt: skip
        (vis,) = predict(double, sky, backend="cpu")
        chi2, n = explicit(part, vis, 0.05)
        residuals = np.asarray(model.residuals(real_parts(used.taken([vis]))))
        assert len(residuals) == n
        # Rounding; a factor of 2 divides chi2 by 4.
        assert float(residuals @ residuals) == pytest.approx(chi2 / 4.0, rel=1e-9)

    def test_a_fitted_factor_has_the_normalisation_of_closures(self, double: biro.Observation) -> None:
        from biro.image_posterior.sampling.closure_fit import closure_model

        (part,) = double.partitions
        operator = ImageOperator(double, ImageField(N, CELL, part.phase_centre), backend="cpu")
        sky = SkyModel(
            [], images=[ImagePrior("x", prior="correlated-field")], noise=Noise(factor=LogUniform(0.1, 10.0))
        )
        problem = ImageProblem(
            double, operator, [0.0 * part.vis], sky.image_priors[0], sky, 1.0, 1, True, closures=True
        )
        image = np.zeros((N, N))
        image[3, 4], image[10, 12] = 3.0, 1.0
        prior = SimpleNamespace(n=1, is_hyper=np.zeros(1, bool), image=lambda xi: image, lines=())
        model = closure_model(problem, prior, 1.0)
        likelihood = model.likelihood()
        residuals = np.asarray(model.visibilities(np.zeros(2)))
        chi2, n = float(residuals[:-2] @ residuals[:-2]), len(residuals) - 2
        y, x = (image.sum(axis=1 - k) @ (np.arange(N) - N // 2) / 4.0 for k in range(2))
        # The centroid is known to half a pixel, whatever the factor of the noise.
        np.testing.assert_allclose(residuals[-2:], [x / 0.5, y / 0.5], rtol=1e-12)
        # xi = 0 is the factor 1, xi = 1 is 0.1 times 100^Phi(1): -ln L = chi2 / (2 s^2) + N ln s.
        s = 0.1 * 100.0**0.8413447460685429
        found = float(likelihood(np.array([0.0, 1.0])) - likelihood(np.zeros(2)))
        assert found == pytest.approx(0.5 * chi2 * (s**-2 - 1.0) + n * np.log(s), rel=1e-9)

    def test_data_without_the_best_gains_have_the_chi2_of_closures(self, double: biro.Observation) -> None:
        from biro.image_posterior.sampling.closure_fit import closure_model, without_gains

        (part,) = double.partitions
        cell = 30.0 * ARCSEC
        operator = ImageOperator(double, ImageField(N, cell, part.phase_centre), backend="cpu")
        sky = SkyModel([], images=[ImagePrior("x", prior="correlated-field")], noise=Noise(factor=1.0))
        problem = ImageProblem(
            double, operator, [0.0 * part.vis], sky.image_priors[0], sky, 1.0, 1, True, closures=True
        )
        # The sky at the pixels nearest to the sources, moved: closures see neither place nor flux.
        image = np.zeros((N, N))
        image[N // 2 + 3, N // 2 - 3], image[N // 2 - 2, N // 2 + 1] = 6.0, 2.0
        prior = SimpleNamespace(n=1, is_hyper=np.zeros(1, bool), image=lambda xi: image, lines=())
        model = closure_model(problem, prior, 8.0)
        calibrated, noise, n_free, facts = without_gains(problem, model, np.zeros(1), image)
        of_closures = facts["closures"]["chi2_phase"] + facts["closures"]["chi2_amplitude"]
        expected, n = explicit(part, operator.predict(image[None])[0], 0.0)
        # Modes that change data by less than 0.01 of the noise are left out.
        assert of_closures == pytest.approx(expected, rel=1e-5)
        assert 2 * sum(calibrated.n_data) - n_free == n
        assert noise == 1.0


@pytest.mark.parametrize(
    ("prior", "changes", "gains", "message"),
    [
        ("smooth", {}, "closures", 'gains = "closures" needs prior = "correlated-field", .* found "smooth"'),
        ("correlated-field", {"flux": None}, "closures", "closures do not determine the flux; give that"),
        ("correlated-field", {}, "marginalise", 'gains = "marginalise" is not available for an image'),
        (
            "correlated-field",
            {"gain": Gain(phase=PerSegment(Uniform("-180 deg", "180 deg"), per="scan"))},
            "closures",
            r"closures do not depend on antenna gains, but the model has \[gain\]",
        ),
        ("correlated-field", {"stokes": "IQU"}, "closures", "closures. needs Stokes I without a spectrum"),
        (
            "correlated-field",
            {"noise": Noise(systematic=Uniform(0.0, 0.2))},
            "closures",
            r"\[noise\] systematic: closures of an image need one number",
        ),
    ],
)
def test_what_closures_do_not_go_with_is_refused(
    observation: biro.Observation, prior: str, changes: dict[str, Any], gains: Any, message: str
) -> None:
    changes = dict(changes)
    of_image = {"flux": changes.pop("flux", "1 Jy"), "stokes": changes.pop("stokes", "I")}
    sky = replace(SkyModel([], images=[ImagePrior("x", prior=prior, **of_image)]), **changes)
    with pytest.raises(InputError, match=message):
        biro.fit_image(observation, sky, gains=gains, progress=False)


def test_the_command_line_hands_gains_to_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def fit(observation: Any, sky: Any, **options: Any) -> Any:
        given.update(options)
        raise InputError("seen")

    monkeypatch.setattr("biro.image_posterior.fit.fit_image", fit)
    monkeypatch.setattr("biro.io.reading.read", lambda *_, **__: None)
    sky = SkyModel([], images=[ImagePrior("x", prior="correlated-field", flux="1 Jy")])
    (tmp_path / "sky.toml").write_text(sky.to_toml())
    command = ["fit", "obs.ms", str(tmp_path / "sky.toml"), "-o", str(tmp_path / "run")]
    CliRunner().invoke(app, [*command, "--gains", "closures"])
    assert given["gains"] == "closures"


def test_systematic_noise_follows_fixed_components(observation: biro.Observation) -> None:
    """sigma^2 + (f |V|)^2 with V of a point of 10 Jy at the phase centre; the image has a hundredth of it."""
    from biro.image_posterior.make_problem import image_problem
    from biro.image_posterior.sampled_model import posterior_model, sky_prior
    from biro.image_posterior.sampling.jax_room import double_precision

    core = PointSource("core", east="0 arcsec", north="0 arcsec", I="10 Jy")
    noise = Noise(factor=1.0, systematic=0.02)
    sky = SkyModel([core], images=[ImagePrior("x", prior="pixels", size=N)], noise=noise)
    with double_precision():
        problem = image_problem(observation, sky, sky.image_priors[0], "cpu", None)
        model: Any = posterior_model(problem, sky_prior(problem, np.full((N, N), 0.1 / N**2)), 0.1)
        xi = np.zeros(model.n)
        scale = np.asarray(model.noise.scale(xi[model.at.noise], model.visibilities(xi)))
    sigma = observation.partitions[0].weight.max() ** -0.5
    # The image changes |V| by 1 % at most.
    assert scale[0].mean() * sigma == pytest.approx(np.hypot(sigma, 0.02 * 10.0), rel=0.02)


def test_calibrated_data_have_the_components_that_were_fitted(
    observation: biro.Observation, tmp_path: Path
) -> None:
    """Data without gains are those that were measured, whatever the component takes."""
    from biro.image_posterior.make_problem import image_problem
    from biro.image_posterior.maps.fast_map import with_components
    from biro.image_posterior.problem import FittedImage
    from biro.image_posterior.results.products import write_calibrated

    core = PointSource("core", east="3 arcsec", north="-2 arcsec", I=Normal(2.0, 0.5, "Jy"))
    sky = SkyModel([core], images=[ImagePrior("x", prior="smooth", size=N)])
    problem = image_problem(observation, sky, sky.image_priors[0], "cpu", None)
    own = with_components(problem, np.zeros(1))
    fitted = FittedImage(np.zeros((1, 1, N, N)), True, own.operator, components=own.components)
    write_calibrated(tmp_path / "calibrated.npz", problem, fitted)
    with np.load(tmp_path / "calibrated.npz") as file:
        written = file["vis_0"]
    assert written == pytest.approx(problem.observation.partitions[0].vis, abs=1e-6)
