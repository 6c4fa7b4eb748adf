"""The ionosphere as a person writes it: matrices against formulas, derivatives, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from biro.models import (
    Ionosphere,
    IonosphereSamples,
    ModelError,
    PartitionView,
    PointSource,
    SkyModel,
    read_model,
    write_model,
)
from biro.models.files.toml import from_toml

C = 299792458.0
FREQ = np.array([1.2e8, 1.5e8])
SOURCE = '[[source]]\nname = "a"\nI = "1 Jy"\neast = "0 mas"\nnorth = "0 mas"\n[noise]\nfactor = 1\n'
CIRCULAR, LINEAR = ("RR", "RL", "LR", "LL"), ("XX", "XY", "YX", "YY")


def view(corr_type: tuple[str, ...] = CIRCULAR) -> PartitionView:
    return PartitionView("f/s", "f", "s", (1.0, 0.5), 10.0 * np.arange(3), FREQ, ("A", "B"), corr_type)


def matrices(text: str, corr_type: tuple[str, ...] = CIRCULAR) -> np.ndarray:
    """(time, antenna, channel, 2, 2)."""
    terms = from_toml(SOURCE + text).bind([view(corr_type)]).sources(np.zeros((1, 0)), 0).antenna_terms
    return terms.jones[0][terms.time_block][:, :, terms.chan_block]


def test_dispersion_is_that_of_low_frequency_calibration() -> None:
    """LoSoTo and DP3 apply exp(i -8.44797245e9 TEC / nu), TEC in TECU, to visibilities of the same sign."""
    found = matrices("[ionosphere]\ntec = 0.3\n[ionosphere.antenna.B]\ntec = -0.2\n")
    phase = -8.44797245e9 * np.array([0.3, -0.2])[:, None] / FREQ
    # Their constant has nine digits, and phases are up to 20 rad.
    for feed in range(2):
        np.testing.assert_allclose(found[0, :, :, feed, feed], np.exp(1j * phase), rtol=0, atol=5e-6)
    assert not found[..., 0, 1].any()


def test_faraday_rotation_in_both_bases() -> None:
    chi = 0.4 * (C / FREQ) ** 2
    circular = matrices('[ionosphere]\nrm = "0.4 rad/m2"\n')
    np.testing.assert_allclose(circular[1, 0, :, 0, 0], np.exp(1j * chi), atol=1e-14)
    np.testing.assert_allclose(circular[1, 0, :, 1, 1], np.exp(-1j * chi), atol=1e-14)
    linear = matrices('[ionosphere]\nrm = "0.4 rad/m2"\n', LINEAR)
    # What is polarised along X, position angle 0, is then at chi: cos chi in X and sin chi in Y.
    np.testing.assert_allclose(linear[1, 0, :, :, 0], np.stack([np.cos(chi), np.sin(chi)], -1), atol=1e-14)
    np.testing.assert_allclose(linear[1, 0, :, :, 1], np.stack([-np.sin(chi), np.cos(chi)], -1), atol=1e-14)


def samples() -> IonosphereSamples:
    time, tec = np.array([-5.0, 15.0]), np.array([[1.0, 2.0], [3.0, 0.0]])
    return IonosphereSamples("", time, ("B", "A"), tec, 0.1 * tec)


def test_a_file_is_interpolated_in_time_and_quantities_add() -> None:
    point = PointSource("a", I="1 Jy", east="0 mas", north="0 mas")
    sky = SkyModel([point], ionosphere=Ionosphere(file=samples(), tec=0.5))
    terms = sky.bind([view()]).sources(np.ones((1, 1)), 0).antenna_terms
    found = terms.jones[0][terms.time_block][:, :, terms.chan_block]
    of_b, of_a = (
        np.array([1.5, 2.5, 3.0]),
        np.array([1.5, 0.5, 0.0]),
    )  # at 0, 10 and 20 s: the last value stays
    for k, tec in enumerate((of_a, of_b)):
        phase = -8.44797245e9 * (tec[:, None] + 0.5) / FREQ + 0.1 * tec[:, None] * (C / FREQ) ** 2
        np.testing.assert_allclose(found[:, k, :, 0, 0], np.exp(1j * phase), rtol=0, atol=1e-4)


@pytest.mark.parametrize("corr_type", [CIRCULAR, LINEAR])
def test_derivatives(corr_type: tuple[str, ...]) -> None:
    leak = {"circular": ("d_r", "d_l"), "linear": ("d_x", "d_y")}[
        "linear" if corr_type == LINEAR else "circular"
    ]
    text = SOURCE + (
        '[feeds]\nrotation = "none"\n[ionosphere]\ntec = { prior = "uniform", low = -0.1, high = 0.1 }\n'
        'rm = { prior = "uniform", low = -1, high = 1, unit = "rad/m2" }\n'
        f'[leakage]\n{leak[0]} = {{ prior = "uniform", low = -0.1, high = 0.1 }}\n{leak[1]} = "0.03-0.02j"\n'
    )
    bound = from_toml(text).bind([view(corr_type)])
    assert {"ionosphere.tec[A]", "ionosphere.tec[B]", "ionosphere.rm[A]"} < set(bound.parameter_names)
    rng = np.random.default_rng(2)
    theta = bound.prior_transform(rng.uniform(size=(1, bound.n_param)))
    (pushed,) = bound.push_forward(theta, np.eye(bound.n_param))
    for k, name in enumerate(bound.parameter_names):
        h = 1e-3 * np.eye(bound.n_param)[k] * (1e-2 if ".tec" in name else 1)
        p, m, pp, mm = (bound.sources(theta + s * h, 0).antenna_terms.jones[0] for s in (1, -1, 2, -2))
        expected = (8 * (p - m) - (pp - mm)) / (12 * h.max())
        # Differences of fourth order with steps of 1e-3 rad, and 1e-16 over 1e-5 of rounding.
        np.testing.assert_allclose(pushed.antenna_terms[k], expected, rtol=1e-7, atol=1e-8, err_msg=name)
    sources = bound.sources(theta, 0)
    size = sources.antenna_terms.jones.shape

    class Slopes:
        profile = beam_scale = pointing = template_scale = template_shift = faraday = None
        lm, stokes = np.zeros_like(sources.lm), np.zeros_like(sources.stokes)
        spectral_terms, shape = np.zeros_like(sources.spectral_terms), np.zeros_like(sources.shape)
        antenna_terms = rng.normal(size=size) + 1j * rng.normal(size=size)

    back = bound.pull_back(theta, [Slopes()])
    by_hand = np.sum((Slopes.antenna_terms.conj() * pushed.antenna_terms).real, axis=(1, 2, 3, 4, 5))
    np.testing.assert_allclose(back[0], by_hand, rtol=1e-10)


def test_model_files(tmp_path: Path) -> None:
    text = '[ionosphere]\nfile = "iono.npz"\nrm = { prior = "normal", mean = 0, sd = 1, unit = "rad/m2" }\n'
    (tmp_path / "a.toml").write_text(SOURCE + text)
    model = read_model(tmp_path / "a.toml")
    assert model.ionosphere.file == (str(tmp_path / "iono.npz"),)
    write_model(model, tmp_path / "b.toml")
    assert read_model(tmp_path / "b.toml") == model
    inside = replace(model, ionosphere=Ionosphere(file=samples()))
    with pytest.raises(ModelError, match="numbers in memory cannot be written"):
        write_model(inside, tmp_path / "c.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tec = [1, 2]", "tec: expected"),
        ('rm = "3 m"', "rm: unit 'm' is not a rotation measure"),
        (
            'kind = "spinifx"',
            "one of given, spinifex, spinifex-tec, found 'spinifx' .did you mean 'spinifex'",
        ),
        ('kind = "spinifex"\nfile = "a.npz"', 'file: is only for kind = "given"'),
        ('kind = "spinifex-tec"\nfile = "a.npz"', 'file: is only for kind = "given", found .*-tec'),
        ('kind = "spinifex"', "spinifex was not read"),
        ("file = 3", "file: expected the path of a file .npz or of a table, found 3"),
        ('file = ""', "file: expected the path"),
        ('file = "a.npz"', "a.npz was not read"),
        ("tecs = 3", "unknown key 'tecs'"),
        ("[ionosphere.antenna.Q]\ntec = 3", "ionosphere: no antenna is called 'Q'"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_toml(f"{SOURCE}[ionosphere]\n{text}\n").bind([view()])


def test_what_fits_no_data() -> None:
    point = PointSource("a", I="1 Jy", east="0 mas", north="0 mas")
    one = samples()
    few = IonosphereSamples("", one.time, ("B",), one.tec[:, :1], one.rm[:, :1])
    with pytest.raises(ModelError, match="the table has no antenna 'A'"):
        SkyModel([point], ionosphere=Ionosphere(file=few)).bind([view()])
    with pytest.raises(ModelError, match="Stokes parameters"):
        SkyModel([point], ionosphere=Ionosphere(tec=1)).bind([view(("I",))])
    with pytest.raises(ModelError, match=r"tec must have shape \(time, antenna\) = \(2, 2\), found \(1, 2\)"):
        IonosphereSamples("", one.time, one.antenna_names, one.tec[:1], one.rm)
    with pytest.raises(ModelError, match="rm must be finite"):
        IonosphereSamples("", one.time, one.antenna_names, one.tec, one.rm * np.nan)
    with pytest.raises(ModelError, match="time must ascend"):
        IonosphereSamples("", one.time[::-1], one.antenna_names, one.tec, one.rm)
