"""Jones matrices of rotated feeds and leakage, against eht-imaging's, and their derivatives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from biro.models import (
    Feeds,
    Gain,
    Leakage,
    ModelError,
    Normal,
    PartitionView,
    PointSource,
    SkyModel,
    Uniform,
)
from biro.models.bound.model import BoundModel
from biro.models.files.toml import from_toml
from rime_kernels.arrays import AntennaTerms
from rime_kernels.cuda.resident_terms import is_device_resident

CIRCULAR, LINEAR = ("RR", "RL", "LR", "LL"), ("XX", "XY", "YX", "YY")
POINT = PointSource("p", east="0 rad", north="0 rad", I="1 Jy")
NAMES = ("A", "B", "C")


@dataclass
class Angles:
    """Angles of feeds that are known."""

    angle: np.ndarray

    def feed_angle(
        self, mounts: Mapping[str, str] | None = None, with_offset: Collection[str] = ()
    ) -> np.ndarray:
        return self.angle

    def frame_angle(self, mounts: Mapping[str, str] | None = None) -> np.ndarray:
        return self.angle


def view_of(
    angle: np.ndarray, corr_type: tuple[str, ...], names: tuple[str, ...] = NAMES, **changed: object
) -> PartitionView:
    view = PartitionView(
        label="f/spw0",
        field="f",
        spw="spw0",
        phase_centre=(1.0, 0.5),
        time=10.0 * np.arange(len(angle)),
        chan_freq=1.4e9 + 1e6 * np.arange(5),
        antenna_names=names,
        corr_type=corr_type,
        feeds=Angles(angle),
    )
    return replace(view, **changed)


def terms_of(bound: BoundModel, theta: np.ndarray, i: int = 0) -> AntennaTerms:
    terms = bound.sources(theta, i).antenna_terms
    assert terms is not None
    return terms


def spread(terms: AntennaTerms) -> np.ndarray:
    """The matrices of each time, antenna and channel, (n_batch, n_time, n_antenna, n_chan, 2, 2)."""
    return terms.jones[:, terms.time_block][:, :, :, terms.chan_block]


def own_matrix(basis: str, phi: float, d: tuple[complex, complex]) -> np.ndarray:
    """D P of section 6, written out."""
    leak = np.array([[1.0, d[0]], [d[1], 1.0]])
    if basis == "circular":
        return leak @ np.diag([np.exp(-1j * phi), np.exp(1j * phi)])
    return leak @ np.array([[np.cos(phi), np.sin(phi)], [-np.sin(phi), np.cos(phi)]])


def test_jones_matrices_are_those_of_eht_imaging(data_dir: Path) -> None:
    """D P of eht-imaging: its G D P without its gains, for its own angles of feeds."""
    with np.load(data_dir / "truth/jones/eht.npz") as file:
        eht = dict(file)
    names = tuple(map(str, eht["stations"]))
    own = {
        name: {"d_r": complex(right), "d_l": complex(left)}
        for name, right, left in zip(names, eht["d_r"], eht["d_l"], strict=True)
    }
    sky = SkyModel([POINT], feeds=Feeds(rotation=True), leakage=Leakage(antenna=own))
    bound = sky.bind([view_of(eht["field_rotation"], CIRCULAR, names)])
    wanted = eht["jones_fr_d_g"] / eht["gain"][..., None]
    # eht-imaging's pi has 13 digits: its README has 7e-13 for visibilities.
    assert np.abs(spread(terms_of(bound, np.ones(1)))[0, :, :, 0] - wanted).max() < 2e-12


def test_leakage_turns_in_data_that_were_corrected(data_dir: Path) -> None:
    """P^H D P, with which eht-imaging made visibilities whose field rotation was taken out again."""
    with np.load(data_dir / "truth/jones/eht.npz") as file:
        eht = dict(file)
    names = tuple(map(str, eht["stations"]))
    pairs = zip(names, eht["d_r"], eht["d_l"], strict=True)
    leakage = Leakage(antenna={name: {"d_r": complex(r), "d_l": complex(left)} for name, r, left in pairs})
    view = view_of(eht["field_rotation"], CIRCULAR, names)
    found = spread(terms_of(SkyModel([POINT], leakage=leakage).bind([view]), np.ones(1)))[0, :, :, 0]
    t, p, q = (eht[name] for name in ("time_index", "antenna1", "antenna2"))
    ideal = eht["vis_ideal"].reshape(-1, 2, 2)
    turned = found[t, p] @ ideal @ found[t, q].conj().swapaxes(-1, -2)
    wanted = eht["vis_d_frcal"].reshape(-1, 2, 2)
    # The README has 1.4e-13 for this formula.
    assert np.linalg.norm(turned - wanted) < 1e-12 * np.linalg.norm(wanted)


def test_corrected_data_need_no_angles_where_rotation_commutes() -> None:
    for corr_type, gain in ((CIRCULAR, Gain(amplitude={"r": 1.1, "l": 0.9})), (LINEAR, Gain(amplitude=1.1))):
        view = view_of(np.full((1, 3), 0.3), corr_type, feeds=None)
        assert terms_of(SkyModel([POINT], gain=gain).bind([view]), np.ones(1)).diagonal
    unequal = SkyModel([POINT], gain=Gain(amplitude={"x": 1.1, "y": 0.9}))
    with pytest.raises(ModelError, match="the feeds of partition 'f/spw0' are unknown"):
        unequal.bind([view_of(np.zeros((1, 3)), LINEAR, feeds=None)])
    cos, sin = np.cos(0.3), np.sin(0.3)
    turn = np.array([[cos, sin], [-sin, cos]])
    found = terms_of(unequal.bind([view_of(np.full((1, 3), 0.3), LINEAR)]), np.ones(1)).jones[0, 0, 0, 0]
    assert np.allclose(found, turn.T @ np.diag([1.1, 0.9]) @ turn, atol=1e-15)
    none = SkyModel([POINT], gain=unequal.gain, feeds=Feeds(rotation="none"))
    found = terms_of(none.bind([view_of(np.full((1, 3), 0.3), LINEAR)]), np.ones(1)).jones[0, 0, 0, 0]
    assert np.array_equal(found, np.diag([1.1, 0.9]))


@pytest.mark.parametrize(("basis", "corr_type"), [("circular", CIRCULAR), ("linear", LINEAR)])
def test_angles_offsets_and_leakages_multiply_in_their_order(basis: str, corr_type: tuple[str, ...]) -> None:
    angle = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.1, 0.2, 0.3]])
    keys = ("d_r", "d_l") if basis == "circular" else ("d_x", "d_y")
    leakage = Leakage(
        **{keys[0]: "0.03-0.02j", keys[1]: {"real": [0.01, 0.05], "imag": -0.04}},
        chan_blocks=2,
        antennas=["A", "B"],
    )
    feeds = Feeds(rotation=True, offset="0.2 rad", antenna={"C": {"offset": "-1 deg"}})
    bound = SkyModel([POINT], feeds=feeds, leakage=leakage).bind([view_of(angle, corr_type)])
    terms = terms_of(bound, np.ones(1))
    assert terms.jones.shape == (1, 2, 3, 2, 2, 2)
    assert terms.chan_block.tolist() == [0, 0, 0, 1, 1]
    found = spread(terms)[0]
    for t, a, f in np.ndindex(3, 3, 5):
        phi = angle[t, a] + (0.2 if a < 2 else np.radians(-1.0))
        d = (0.03 - 0.02j, (0.01, 0.05)[f // 3] - 0.04j) if a < 2 else (0.0, 0.0)
        # A few roundings of numbers of size 1.
        assert np.abs(found[t, a, f] - own_matrix(basis, phi, d)).max() < 1e-15


def test_without_rotation_only_offsets_turn_feeds() -> None:
    angle = np.array([[0.1, 0.2, 0.3]])
    bound = SkyModel([POINT], feeds=Feeds(offset="0.2 rad")).bind([view_of(angle, CIRCULAR)])
    assert np.allclose(terms_of(bound, np.ones(1)).jones[0, 0, :, 0, 0, 0], np.exp(-0.2j), atol=1e-15)
    assert SkyModel([POINT]).bind([view_of(angle, CIRCULAR)]).sources(np.ones(1), 0).antenna_terms is None


def test_matrices_that_no_parameter_changes_stay_on_a_gpu() -> None:
    """Those of a likelihood's calls: `sources` gives copies that a user may change."""
    angle = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    for corr_type in (CIRCULAR, LINEAR):
        bound = SkyModel([POINT], feeds=Feeds(rotation="present")).bind([view_of(angle, corr_type)])
        first, second = (next(iter(bound.sources_of_all([x]))).antenna_terms for x in (1.0, 2.0))
        assert first is second
        assert is_device_resident(first)
    fitted = free_model(("d_r", "d_l")).bind([view_of(angle, CIRCULAR)])
    assert not is_device_resident(
        next(iter(fitted.sources_of_all(np.zeros(len(fitted.parameters))))).antenna_terms
    )


def test_matrices_that_are_all_one_are_none() -> None:
    """Equatorial mounts: what is not used costs nothing."""
    for rotation in ("present", "corrected", "none"):
        for corr_type in (CIRCULAR, LINEAR):
            bound = SkyModel([POINT], feeds=Feeds(rotation=rotation)).bind(
                [view_of(np.zeros((2, 3)), corr_type)]
            )
            assert bound.sources(np.ones(1), 0).antenna_terms is None
            assert not bound.has_antenna_terms


def free_model(keys: tuple[str, str], rotation: str = "present") -> SkyModel:
    normal = Normal(0.0, 0.1)
    return SkyModel(
        [PointSource("p", east="0 rad", north="0 rad", I=Uniform("0 Jy", "2 Jy"))],
        feeds=Feeds(
            rotation=rotation, offset=Normal(0, 5, "deg"), antenna={"B": {"offset": "feeds.offset[A] * 2"}}
        ),
        leakage=Leakage(
            **{keys[0]: normal, keys[1]: {"real": normal, "imag": f"leakage.{keys[1]}.real[A][0]"}},
            chan_blocks=2,
            antenna={"C": {keys[0]: "0.1j"}},
        ),
    )


def test_parameters_have_names_units_and_one_for_each_antenna() -> None:
    bound = free_model(("d_r", "d_l")).bind([view_of(np.zeros((2, 3)), CIRCULAR)])
    names = {parameter.name: parameter.unit for parameter in bound.parameters}
    assert names["feeds.offset[A]"] == "deg"
    assert "feeds.offset[B]" not in names
    leaks = [name for name in names if name.startswith("leakage.")]
    # d_r of A and B: real and imaginary part, two blocks; d_l: the real part alone, of three antennas.
    assert len(leaks) == 2 * 2 * 2 + 3 * 2
    assert {"leakage.d_r.real[A][0]", "leakage.d_r.imag[B][1]", "leakage.d_l.real[C][0]"} <= set(leaks)
    assert all(names[leak] == "" for leak in leaks)
    assert all(parameter.latex.startswith("$") for parameter in bound.parameters)


def test_antennas_without_rows_have_no_parameters() -> None:
    view = view_of(np.zeros((2, 3)), CIRCULAR, used=np.array([True, False, True]))
    bound = SkyModel([POINT], leakage=Leakage(d_r=Normal(0, 0.1))).bind([view])
    assert {name[-3:] for name in bound.parameter_names if name.startswith("leakage")} == {"[A]", "[C]"}


def check_push_and_pull(
    bound: BoundModel, theta: np.ndarray, change: np.ndarray, rng: np.random.Generator, truncation: float
) -> None:
    """Changes of antenna terms are differences, missing step^2 / 3 of third derivatives; and the adjoint."""
    step, total, slopes = 1e-4, 0.0, []
    made = [[each.copy() for each in bound.sources_of_all(theta + s * step * change)] for s in (1, -1, 0)]
    for up, down, at, pushed in zip(*made, bound.push_forward(theta, change), strict=True):
        difference = (up.antenna_terms.jones - down.antenna_terms.jones) / (2 * step)
        assert pushed.antenna_terms.shape == at.antenna_terms.jones.shape
        assert np.abs(pushed.antenna_terms - difference).max() < truncation
        by_jones = rng.normal(size=difference.shape) + 1j * rng.normal(size=difference.shape)
        total += (by_jones.conj() * pushed.antenna_terms).real.sum()
        zeros = {
            name: np.zeros_like(getattr(at, name)) for name in ("lm", "stokes", "spectral_terms", "shape")
        }
        none = dict.fromkeys(("beam_scale", "pointing", "template_scale", "template_shift"))
        slopes.append(SimpleNamespace(**zeros, **none, antenna_terms=by_jones))
    # Equal sums but for roundings.
    assert (bound.pull_back(theta, slopes) * change).sum() == pytest.approx(total, rel=1e-11)


@pytest.mark.parametrize("rotation", ["present", "corrected", "none"])
@pytest.mark.parametrize("corr_type", [CIRCULAR, LINEAR])
def test_derivatives_are_those_of_differences_and_adjoint(corr_type: tuple[str, ...], rotation: str) -> None:
    rng = np.random.default_rng(1)
    angle = rng.normal(size=(3, 3))
    other = view_of(rng.normal(size=(2, 3)), corr_type, label="f/spw1", spw="spw1")
    sky = free_model(("d_r", "d_l") if corr_type == CIRCULAR else ("d_x", "d_y"), rotation)
    bound = sky.bind([view_of(angle, corr_type), other])
    theta = bound.prior_transform(rng.uniform(0.2, 0.8, size=(2, bound.n_param)))
    # Third derivatives have size 1 in units of 5 deg and 1.
    check_push_and_pull(bound, theta, rng.normal(size=theta.shape), rng, 1e-7)


def test_model_files_keep_everything() -> None:
    for keys in (("d_r", "d_l"), ("d_x", "d_y")):
        sky = free_model(keys)
        assert from_toml(sky.to_toml()) == sky
    text = """
[feeds]
rotation = true
mount = { A = "nasmyth-right", B = "alt-az" }
offset = { prior = "normal", mean = 0, sd = 2, unit = "deg" }
antennas = ["A"]

[leakage]
d_r = { prior = "normal", mean = 0, sd = 0.05 }
d_l = "0.01+0.02j"
per = "spw"
chan_blocks = 4

[leakage.antenna.B]
d_r = { real = 0.1, imag = [0, 0.1, 0.2, 0.3] }

[[source]]
name = "p"
east = "0 rad"
north = "0 rad"
I = "1 Jy"
"""
    sky = from_toml(text)
    assert sky.feeds == Feeds(
        rotation=True, mount={"A": "nasmyth-right", "B": "alt-az"}, offset=Normal(0, 2, "deg"), antennas=["A"]
    )
    assert sky.leakage.per == "spw"
    assert from_toml(sky.to_toml()) == sky


def test_leakages_of_partitions_may_differ() -> None:
    views = [view_of(np.zeros((1, 3)), CIRCULAR, label=f"f/{spw}", spw=spw) for spw in ("spw0", "spw1")]
    bound = SkyModel([POINT], leakage=Leakage(d_r=Normal(0, 0.1), per="spw", antennas=["A"])).bind(views)
    leaks = [name for name in bound.parameter_names if name.startswith("leakage")]
    assert leaks[:2] == ["leakage.d_r.real[A][spw0]", "leakage.d_r.imag[A][spw0]"]
    assert len(leaks) == 4


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"leakage": {"d_r": 0.1}, "corr_type": ("I", "Q")},
            r"'f/spw0' has Stokes parameters \(I Q\); read RR",
        ),
        ({"feeds": {"rotation": True}, "corr_type": ("I",)}, "belong to the correlations of feeds"),
        ({"leakage": {"d_x": 0.1}}, "d_x is of feeds that the data do not have; the data have d_l, d_r"),
        ({"leakage": {"d_r": 0.1, "antennas": ["Z"]}}, "leakage: no antenna is called 'Z'"),
        ({"feeds": {"antenna": {"Z": {"offset": "1 deg"}}}}, "feeds: no antenna is called 'Z'"),
        ({"feeds": {"mount": "alt-az", "rotation": False}}, "mount: has no effect with rotation = .none"),
        ({"feeds": {"rotation": "presnt"}}, r"rotation: one of .*did you mean 'present'"),
        ({"feeds": {"rotation": True, "mount": "bizarre"}}, "mount: one of alt-az, .*, found 'bizarre'"),
        ({"feeds": {"offset": 3}}, "offset: 3 has no unit"),
        ({"leakage": {"d_r": {"reel": 1}}}, r"d_r: unknown key 'reel' \(did you mean 'real'\?\)"),
        ({"leakage": {"d_r": "leakage.d_l.real[A]"}}, "a tie says which part it is of"),
        ({"leakage": {"d_r": "0.1+0.2i"}}, 'd_r: expected a complex number such as "0.03-0.02j"'),
        ({"leakage": {"d_r": [1, 2, 3], "chan_blocks": 2}}, "chan_blocks = 2, found 3"),
        ({"leakage": {"chan_blocks": 0}}, "chan_blocks: from 1 to 10000, found 0"),
        (
            {"leakage": {"d_r": 0.1, "chan_blocks": 1000}},
            "chan_blocks = 1000 is more than the [0-9]+ channels",
        ),
        ({"leakage": {"per": "hands"}}, "per: one of partition, field, spw, all, found 'hands'"),
        ({"leakage": {"antenna": {"A": {"d_q": 1}}}}, "antenna.A: unknown key 'd_q'"),
        ({"leakage": {"d_r": "0.1 Jy"}}, "unit 'Jy' is not a plain number"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changed: dict, message: str) -> None:
    def bind() -> BoundModel:
        parts = {"feeds": Feeds, "leakage": Leakage}
        given = {name: kind(**changed[name]) for name, kind in parts.items() if name in changed}
        view = view_of(np.zeros((1, 3)), changed.get("corr_type", CIRCULAR))
        return SkyModel([POINT], **given).bind([view])

    with pytest.raises(ModelError, match=message) as caught:
        bind()
    assert "\n" not in str(caught.value)


def test_a_model_that_turns_feeds_has_another_digest() -> None:
    sky = SkyModel([POINT], feeds=Feeds(rotation=True))
    first, second = (sky.bind([view_of(np.full((1, 3), angle), CIRCULAR)]) for angle in (0.1, 0.2))
    assert first.digest() != second.digest()
