"""Stokes parameters formed while reading: values, weights, flags, copies of hands, against closed forms."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import biro
from biro.errors import BiroError, InputError
from biro.io.measurement_set import write_column
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.stokes import form_stokes, merge_copies, parse_stokes, stokes_planes

LINEAR, CIRCULAR = ("XX", "XY", "YX", "YY"), ("RR", "RL", "LR", "LL")
# Conventions, section 3, written out: correlations of I, Q, U, V.
CORRELATIONS: dict[str, Callable[..., complex]] = {
    "XX": lambda i, q, u, v: i + q,
    "XY": lambda i, q, u, v: u + 1j * v,
    "YX": lambda i, q, u, v: u - 1j * v,
    "YY": lambda i, q, u, v: i - q,
    "RR": lambda i, q, u, v: i + v,
    "RL": lambda i, q, u, v: q + 1j * u,
    "LR": lambda i, q, u, v: q - 1j * u,
    "LL": lambda i, q, u, v: i - v,
}
SKY = (3.0 - 1.0j, 0.3 + 0.2j, -0.2 + 0.5j, 0.1 - 0.4j)


def observed(corr_type: Sequence[str], vis: np.ndarray, weight: object = 1.0) -> Partition:
    """One channel, a row for each of the visibilities (n_row, n_corr), on two baselines."""
    n = len(vis)
    obs = Observation.from_arrays(
        vis=np.asarray(vis, np.complex128)[:, None],
        uvw=np.random.default_rng(5).normal(size=(n, 3)) * 1e3,
        antenna1=np.zeros(n, int),
        antenna2=1 + np.arange(n) % 2,
        time=5e9 + 10.0 * (np.arange(n) // 2),
        chan_freq=[1.4e9],
        corr_type=corr_type,
        weight=np.broadcast_to(np.asarray(weight, float), (n, len(corr_type)))[:, None],
    )
    return obs.partitions[0]


@pytest.mark.parametrize("corr_type", [LINEAR, CIRCULAR, LINEAR[::-1], ("LL", "RR", "RL", "LR")])
def test_values_and_weights_of_all_four(corr_type: tuple[str, ...]) -> None:
    vis = np.array([[CORRELATIONS[name](*SKY) for name in corr_type]])
    weight = {"XX": 4.0, "YY": 1.0, "XY": 2.0, "YX": 0.5, "RR": 4.0, "LL": 1.0, "RL": 2.0, "LR": 0.5}
    part = observed(corr_type, vis, [weight[name] for name in corr_type])
    (formed,), counts = form_stokes([part], "IQUV")
    assert formed.corr_type == ("I", "Q", "U", "V")
    np.testing.assert_allclose(formed.vis[0, 0], SKY, rtol=1e-14)
    # Half the sum or the difference of two: variance (1/w1 + 1/w2) / 4.
    parallel, cross = 4 / (1 / 4.0 + 1 / 1.0), 4 / (1 / 2.0 + 1 / 0.5)
    kinds = (parallel, parallel, cross, cross) if "XX" in corr_type else (parallel, cross, cross, parallel)
    np.testing.assert_allclose(formed.weight[0, 0], kinds, rtol=1e-14)
    assert (counts.n_formed, counts.n_incomplete, counts.n_one_hand) == (4, 0, 0)


def test_weights_are_one_over_the_variance_of_noise() -> None:
    rng = np.random.default_rng(1)
    weight = np.array([4.0, 1.0, 2.0, 0.5])
    noise = (rng.normal(size=(20000, 4)) + 1j * rng.normal(size=(20000, 4))) / np.sqrt(weight)
    (formed,), _ = form_stokes([observed(LINEAR, noise, weight)], "IQUV")
    scaled = formed.vis[:, 0] * np.sqrt(formed.weight[:, 0])
    # 40000 real numbers of variance 1: the mean of their squares is known to sqrt(2 / 40000) = 0.7 %.
    np.testing.assert_allclose((np.abs(scaled) ** 2).mean(axis=0) / 2, 1.0, atol=0.035)


def test_a_flagged_hand_leaves_out_i_but_not_pseudo_i() -> None:
    vis = np.array([[1.0, 3.0], [2.0, 8.0], [5.0, 7.0], [9.0, 9.5]])
    weight = np.array([[4.0, 1.0], [3.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    part = observed(("RR", "LL"), vis, weight)
    (strict,), counts = form_stokes([part], "I")
    np.testing.assert_allclose(strict.vis[:, 0, 0], [2.0, 0, 0, 0])
    np.testing.assert_allclose(strict.weight[:, 0, 0], [4 / (1 / 4 + 1), 0, 0, 0])
    assert (counts.n_formed, counts.n_incomplete) == (1, 2)
    assert "2 left out" in str(counts)
    (pseudo,), counts = form_stokes([part], "pseudoI")
    np.testing.assert_allclose(pseudo.vis[:, 0, 0], [(4 * 1 + 3) / 5, 2.0, 7.0, 0])
    np.testing.assert_allclose(pseudo.weight[:, 0, 0], [5.0, 3.0, 2.0, 0])
    assert (counts.n_formed, counts.n_one_hand) == (3, 2)
    assert "2 of these from one parallel hand only" in str(counts)


def test_polarised_sky_is_no_bias_of_i() -> None:
    """With unequal weights the weighted mean of XX and YY has some of Q, the plain mean has none."""
    vis = np.array([[CORRELATIONS[name](*SKY) for name in ("XX", "YY")]])
    part = observed(("XX", "YY"), vis, [4.0, 1.0])
    assert form_stokes([part], "I")[0][0].vis[0, 0, 0] == pytest.approx(SKY[0], rel=1e-14)
    biased = SKY[0] + (4 - 1) / (4 + 1) * SKY[1]
    assert form_stokes([part], "pseudoI")[0][0].vis[0, 0, 0] == pytest.approx(biased, rel=1e-14)


def test_stored_stokes_parameters_stay_as_they_are() -> None:
    part = observed(("I", "V"), np.array([[1.0, 0.5], [2.0, 0.25]]), [[3.0, 2.0], [1.0, 0.0]])
    for wanted, column in (("I", 0), ("V", 1), ("pseudoI", 0)):
        (formed,), _ = form_stokes([part], wanted)
        np.testing.assert_array_equal(formed.vis[..., 0], part.vis[..., column])
        np.testing.assert_array_equal(formed.weight[..., 0], part.weight[..., column])


@pytest.mark.parametrize(
    ("corr_type", "stokes", "message"),
    [
        (("RR",), "I", "Stokes I does not follow from RR .*; pseudoI .* could be formed"),
        (("RR", "LL"), "IQUV", "Stokes IQUV does not follow from RR, LL .*; I, V could be formed"),
        (("XY", "YX"), "pseudoI", "Stokes pseudoI does not follow from XY, YX"),
        (("I",), "V", "Stokes V does not follow from I .*; I could be formed"),
    ],
)
def test_correlations_that_do_not_determine_it(corr_type: tuple[str, ...], stokes: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        form_stokes([observed(corr_type, np.ones((2, len(corr_type))))], stokes)


def test_names_of_stokes_parameters() -> None:
    names = ("i", "u, q", "VUQI", "pseudo-I", "PSEUDOI")
    assert [parse_stokes(text) for text in names] == ["I", "QU", "IQUV", "pseudoI", "pseudoI"]
    for text in ("", "W", "II", "XX"):
        with pytest.raises(InputError, match="stokes must be letters of IQUV"):
            parse_stokes(text)
    # FITS counts I, Q, U, V from 1 to 4, in even steps along an axis.
    assert [stokes_planes(text) for text in ("pseudoI", "IV", "QU", "IQU")] == ["I", "IV", "QU", "IQU"]
    with pytest.raises(InputError, match="no regular axis in FITS"):
        stokes_planes("IQV")


def test_hands_that_are_copies_count_once() -> None:
    rng = np.random.default_rng(3)
    hand = rng.normal(size=200) + 1j * rng.normal(size=200)
    weight = np.tile([2.0, 3.0], (200, 1))
    weight[:4, 0] = 0.0
    part = observed(("RR", "LL"), np.stack([hand, hand], axis=1), weight)
    (merged,), notes = merge_copies([part])
    assert merged.corr_type == ("I",)
    np.testing.assert_allclose(merged.vis[:, 0, 0], hand, rtol=1e-14)
    np.testing.assert_allclose(merged.weight[:, 0, 0], np.where(np.arange(200) < 4, 3.0, 5.0))
    assert len(notes) == 1
    assert "196 visibilities are identical" in notes[0]
    # A single visibility that differs by a rounding makes them two measurements.
    other = np.stack([hand, hand], axis=1)
    other[150, 1] *= 1 + 1e-15
    assert merge_copies([observed(("RR", "LL"), other)])[1] == []
    # Where one of the two is flagged throughout there is nothing to compare.
    assert merge_copies([observed(("RR", "LL"), other, [1.0, 0.0])])[1] == []
    # Cross hands tell of polarisation: all stay, with a remark.
    four = np.stack([hand, 0 * hand, 0 * hand, hand], axis=1)
    (kept,), notes = merge_copies([observed(CIRCULAR, four)])
    assert kept.corr_type == CIRCULAR
    assert "biro counts them twice" in notes[0]


# --- real data


def test_reading_forms_stokes_before_it_averages(measurement_set: Callable[[str], Path]) -> None:
    path = measurement_set("vla_3c273_x")
    whole = biro.read_ms(path)
    expected, counts = form_stokes(whole.partitions, "IV")
    obs = biro.read_ms(path, stokes="IV")
    np.testing.assert_array_equal(obs.partitions[0].vis, expected[0].vis)
    np.testing.assert_array_equal(obs.partitions[0].weight, expected[0].weight)
    assert obs.formed == counts
    # RR and LL, all with the weight 1 or 0: I and V count where both do.
    n_both = int((whole.partitions[0].weight[..., [0, 3]] > 0).all(axis=2).sum())
    n_any = int((whole.partitions[0].weight[..., [0, 3]] > 0).any(axis=2).sum())
    assert (counts.n_formed, counts.n_incomplete) == (2 * n_both, 2 * (n_any - n_both))
    assert f"Stokes        IV: {2 * n_both} visibilities formed" in str(obs.summary())
    averaged = biro.read_ms(path, stokes="I", average_time="30 s").partitions[0]
    # Two hands of weight 1 make an I of weight 2, and weights add up: 2 for each that was formed.
    assert averaged.weight.sum() == 2 * n_both


def test_selections_and_columns_that_stokes_cannot_have(
    measurement_set: Callable[[str], Path], tmp_path: Path
) -> None:
    path = measurement_set("vla_3c273_x")
    with pytest.raises(BiroError, match=r"no correlation I is stored; .* give stokes='I' \(--stokes I\)"):
        biro.read_ms(path, correlations="I")
    with pytest.raises(BiroError, match="Stokes I does not follow from LL"):
        biro.read_ms(path, correlations="LL", stokes="I")
    assert biro.read_ms(path, correlations="LL", stokes="pseudoI").partitions[0].corr_type == ("I",)
    obs = biro.read_ms(path, stokes="I")
    copy = shutil.copytree(path, tmp_path / "copy.ms")
    with pytest.raises(InputError, match="cannot write a column from Stokes parameters"):
        write_column(copy, "MODEL_DATA", obs, [part.vis for part in obs.partitions])


def test_eht_set_is_read_as_stokes_i(measurement_set: Callable[[str], Path]) -> None:
    """Its RR and LL are Stokes I; the noise is that of the sum of their weights, not of one of them."""
    obs = biro.read_ms(measurement_set("SR1_M87_2017_100_lo_hops_netcal_StokesI"))
    assert obs.partitions[0].corr_type == ("I",)
    assert sum("2367 visibilities are identical" in note for note in obs.notes) == 1
    once = biro.read_ms(measurement_set("SR1_M87_2017_100_lo_hops_netcal_StokesI"), correlations="RR")
    # Phases of the atmosphere and correlated gains are some of the difference to 1 and to 1/sqrt(2).
    assert obs.summary().noise["I"].ratio == pytest.approx(1.0, abs=0.15)
    assert once.summary().noise["RR"].ratio == pytest.approx(np.sqrt(0.5), abs=0.1)


def test_image_of_formed_stokes_is_that_of_correlations(measurement_set: Callable[[str], Path]) -> None:
    path = measurement_set("vla_3c273_x")
    options = {"cell": "0.6 arcsec", "size": 128, "accuracy": 1e-5}
    both = biro.read_ms(path)
    for stokes in ("I", "QU", "pseudoI"):
        direct = biro.image(both, stokes=stokes, **options)
        formed = biro.image(biro.read_ms(path, stokes=stokes), stokes=stokes, **options)
        np.testing.assert_allclose(formed.dirty, direct.dirty, atol=1e-5 * np.abs(direct.dirty).max())
        assert formed.noise == pytest.approx(direct.noise, rel=1e-6)
        assert (formed.stokes, formed.n_vis) == (direct.stokes, direct.n_vis)
    # Without I the default is the first of what there is.
    assert biro.image(biro.read_ms(path, stokes="QU"), **options).stokes == "Q"


def test_stokes_axis_of_a_file(measurement_set: Callable[[str], Path], tmp_path: Path) -> None:
    from astropy.io import fits

    obs = biro.read_ms(measurement_set("vla_3c273_x"))
    made = biro.image(obs, stokes="QU", cell="0.6 arcsec", size=64)
    header = fits.getheader(made.save(tmp_path / "qu")[0])
    assert (header["CTYPE4"], header["CRVAL4"], header["CDELT4"], header["NAXIS4"]) == ("STOKES", 2.0, 1.0, 2)


def test_digest_tells_stokes_from_correlations(measurement_set: Callable[[str], Path]) -> None:
    path = measurement_set("vla_3c273_x")
    obs = [biro.read_ms(path, **options) for options in ({}, {"stokes": "I"}, {"stokes": "pseudoI"})]
    assert len({item.digest() for item in obs}) == 3
    again = replace(obs[1], notes=())
    assert again.digest() == obs[1].digest()
