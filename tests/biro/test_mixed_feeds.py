"""Arrays whose antennas have circular and linear feeds: RX, RY, LX, LY, XR, XL, YR, YL in Measurement Sets.

The truth is the 2x2 matrix C = 1/sqrt(2) [[1, i], [1, -i]], which makes (R, L) of (X, Y): it turns the
correlations of a set with linear feeds into those of other feeds, V_pq -> C_p V_pq C_q^H.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from casacore.tables import table

import biro
from biro.measurement_set import create_ms, read_ms
from biro.models import PointSource, SkyModel
from biro.simulation.simulator import Channels, Track, simulate
from rime_kernels import stokes_to_corr

CIRCULAR = np.array([[1, 1j], [1, -1j]]) / np.sqrt(2)
FLUX = {"I": 1.5, "Q": 0.3, "U": -0.2, "V": 0.1}
SIGMA = 0.02
CODES = {"RR": 5, "RL": 6, "LR": 7, "LL": 8, "XX": 9, "XY": 10, "YX": 11, "YY": 12} | {
    name: 13 + i for i, name in enumerate(("RX", "RY", "LX", "LY", "XR", "XL", "YR", "YL"))
}
"""casacore, Stokes.h: StokesTypes."""


def products(first: str, second: str) -> tuple[str, ...]:
    return tuple(p + q for p in first for q in second)


def source(**flux: object) -> SkyModel:
    return SkyModel([PointSource("a", east="20 arcsec", north="-10 arcsec", **flux)])


TRUTH = source(**{name: f"{value} Jy" for name, value in FLUX.items()})


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mixed") / "linear.ms"
    times, channels = Track("2026-03-01", 600.0, 60.0), Channels(1.4e9, 1e6, 2)
    place = (1.3, -0.5)
    create_ms(
        path,
        simulate("KAT-7", TRUTH, phase_centre=place, times=times, channels=channels, noise=SIGMA, seed=3),
    )
    return path


def with_feeds(linear: Path, place: Path, kinds: str) -> Path:
    """A copy whose antennas have linear (x) and circular (o) feeds."""
    path = Path(shutil.copytree(linear, place))
    names = {"x": "XY", "o": "RL"}
    setups = [(p, q) for p in "xo" for q in "xo"]
    with table(f"{path}::POLARIZATION", readonly=False, ack=False) as polarization:
        polarization.copyrows(polarization, startrowin=0, nrow=1)
        polarization.copyrows(polarization, startrowin=0, nrow=2)
        for i, (p, q) in enumerate(setups):
            codes = [CODES[name] for name in products(names[p], names[q])]
            polarization.putcell("CORR_TYPE", i, np.array(codes, np.int32))
    with table(f"{path}::DATA_DESCRIPTION", readonly=False, ack=False) as description:
        description.addrows(3)
        description.putcol("POLARIZATION_ID", np.arange(4, dtype=np.int32))
        description.putcol("SPECTRAL_WINDOW_ID", np.zeros(4, np.int32))
    jones = np.array([CIRCULAR if kind == "o" else np.eye(2) for kind in kinds])
    with table(str(path), readonly=False, ack=False) as main:
        first, second = main.getcol("ANTENNA1"), main.getcol("ANTENNA2")
        data = main.getcol("DATA").reshape(len(first), -1, 2, 2)
        turned = np.einsum("rij,rcjk,rlk->rcil", jones[first], data, jones[second].conj())
        main.putcol("DATA", turned.reshape(*turned.shape[:2], 4).astype(np.complex64))
        numbers = [setups.index((kinds[p], kinds[q])) for p, q in zip(first, second, strict=True)]
        main.putcol("DATA_DESC_ID", np.array(numbers, np.int32))
    return path


@pytest.fixture(params=["ooxxxxx", "xxxxooo", "oxoxoxx"])
def mixed(request: pytest.FixtureRequest, linear: Path, tmp_path: Path) -> Path:
    return with_feeds(linear, tmp_path / "mixed.ms", request.param)


def test_the_matrices_are_those_of_the_feeds() -> None:
    xy = stokes_to_corr(("XX", "XY", "YX", "YY")).reshape(2, 2, 4)
    left, right = np.einsum("ij,jks->iks", CIRCULAR, xy), np.einsum("ijs,kj->iks", xy, CIRCULAR.conj())
    np.testing.assert_allclose(stokes_to_corr(products("RL", "XY")), left.reshape(4, 4), atol=1e-15)
    np.testing.assert_allclose(stokes_to_corr(products("XY", "RL")), right.reshape(4, 4), atol=1e-15)
    both = np.einsum("iks,lk->ils", left, CIRCULAR.conj()).reshape(4, 4)
    np.testing.assert_allclose(stokes_to_corr(("RR", "RL", "LR", "LL")), both, atol=1e-15)


def test_a_fit_of_all_feeds_together(mixed: Path) -> None:
    """The sky of a fit is that of the linear set, with its errors: C is unitary."""
    free = {name: {"prior": "uniform", "low": -9, "high": 9, "unit": "Jy"} for name in FLUX}
    observation = biro.read(mixed)
    likelihood = biro.Likelihood(observation, source(**free), smearing="off")
    best = dict(zip(likelihood.parameter_names, biro.maximise(likelihood).best_fit, strict=True))
    n = observation.counts["usable"] / 4
    for name, value in FLUX.items():
        # Each Stokes parameter is a mean of 2 n products of a real part of noise sigma; five of its errors.
        assert abs(best[f"a.{name}"] - value) < 5 * SIGMA / np.sqrt(2 * n)
    names = {name for part in observation.partitions for name in part.corr_type}
    assert names & {"RX", "XR"}
    likelihood = biro.Likelihood(observation, TRUTH, smearing="off")
    # Of 2 N real numbers, chi2 has the mean 2 N and the variance 4 N; five of its standard deviations.
    total = 2 * observation.counts["usable"]
    assert abs(likelihood.chi2(np.ones(1)) - total) < 5 * np.sqrt(2 * total)


def stokes_of(path: Path, stokes: str) -> dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]]:
    """Visibilities and weights of each row, by its time and antennas."""
    return {
        (round(part.time[row]), part.antenna1[row], part.antenna2[row]): (part.vis[row], part.weight[row])
        for part in read_ms(path, stokes=stokes).partitions
        for row in range(part.n_row)
    }


def test_stokes_parameters_are_those_of_the_linear_set(mixed: Path, linear: Path) -> None:
    found, expected = stokes_of(mixed, "IQUV"), stokes_of(linear, "IQUV")
    assert found.keys() == expected.keys()
    for key, (vis, weight) in expected.items():
        np.testing.assert_allclose(found[key][0], vis, atol=1e-6)  # float32 numbers of about 1
        np.testing.assert_allclose(found[key][1], weight, rtol=1e-6)
