"""Which parameters have no effect where another one is 0, from the formulas of sources."""

from __future__ import annotations

import numpy as np
import pytest

from biro.inference.maximum.laplace import Laplace
from biro.inference.maximum.switched_off import switched_off

CASES: dict[str, tuple[list[str], list[str], list[list[str]], dict[str, list[str]]]] = {
    "no size": (["fwhm"], [], [["ratio", "pa"], ["n"]], {"s.fwhm": ["s.ratio", "s.pa", "s.n"]}),
    "no flux": (
        ["I"],
        [],
        [["east", "orbit.node"], ["beta_re[1]"]],
        {"s.I": ["s.east", "s.orbit.node", "s.beta_re[1]"]},
    ),
    "a blur beside a size of 0": (["emaj"], [], [["blur"]], {}),
    "no circular polarisation": (["V"], [], [["I", "spectral_index"]], {}),
    "one that is switched off, and one that is not": (["fwhm"], [], [["pa", "spectral_index"]], {}),
    "no polarised fraction": (
        ["pol_fraction"],
        [],
        [["pol_angle", "rm"]],
        {"s.pol_fraction": ["s.pol_angle", "s.rm"]},
    ),
    "no Q, but U": (["Q"], ["U"], [["rm"]], {}),
    "neither Q nor U": (["Q", "U"], [], [["rm"]], {"s.Q": ["s.rm"]}),
    "no I, but V": (["I"], ["V"], [["east"]], {}),
    "I of one time": (["I[0]"], ["I[1]"], [["east"]], {}),
    "two reasons": (
        ["fwhm", "pol_fraction"],
        [],
        [["pa"], ["pol_angle"]],
        {"s.fwhm": ["s.pa"], "s.pol_fraction": ["s.pol_angle"]},
    ),
    "two reasons of one direction": (
        ["fwhm", "pol_fraction"],
        [],
        [["pa", "pol_angle"]],
        {"s.fwhm": ["s.pa"], "s.pol_fraction": ["s.pol_angle"]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_zero_explains_only_what_it_switches_off(case: str) -> None:
    zero, others, directions, expected = CASES[case]
    zero, others = ([f"s.{key}" for key in keys] for keys in (zero, others))
    lost = [[f"s.{key}" for key in keys] for keys in directions]
    names = list(dict.fromkeys([*zero, *others, *(name for members in lost for name in members)]))
    assert switched_off(names, zero, zero, lost) == expected


def test_a_zero_is_no_reason_for_another_source() -> None:
    """Names of sources may have dots: "s.a" is no part of "s"."""
    assert not switched_off(["s.I", "s.a.pa", "t.pa"], ["s.I"], ["s.I"], [["s.a.pa"], ["t.pa"]])


def test_directions_of_one_text_keep_all_their_members() -> None:
    """Two fluxes that unknown amplitudes leave open are both named."""
    names = ["gain.amplitude[a]", "s.I", "gain.amplitude[b]", "t.I"]
    null = np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
    zeros, ones = np.zeros(4), np.ones(4)
    laplace = Laplace(ones, np.eye(4), np.eye(4), zeros.astype(int), zeros, null, ones, np.ones((2, 4)))
    (members,) = laplace.open_directions(names).values()
    assert members == names
