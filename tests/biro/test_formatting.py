"""Text of angles, numbers and tables."""

import numpy as np
import pytest

from biro.display.formatting import (
    ANGLES,
    FLUXES,
    FREQUENCIES,
    LENGTHS,
    align,
    angle_text,
    check_names,
    digits_after_point,
    frequency_text,
    in_unit,
    number_of,
    percent,
    plain,
    range_text,
    sexagesimal,
    unit_for,
)
from biro.errors import InputError


@pytest.mark.parametrize(
    ("ra", "dec", "text"),
    [
        (0.0, 0.0, ("00h00m00.000s", "+00d00m00.00s")),
        (-1e-12, -1e-12, ("00h00m00.000s", "-00d00m00.00s")),
        (np.pi, -np.pi / 2, ("12h00m00.000s", "-90d00m00.00s")),
        ((1 - 1e-13) * np.pi / 12, 0.1, ("01h00m00.000s", "+05d43m46.48s")),
    ],
)
def test_sexagesimal(ra: float, dec: float, text: tuple[str, str]) -> None:
    assert sexagesimal(ra, dec) == text


def test_units_for_people() -> None:
    assert [angle_text(x) for x in (0.1, 1e-3, 1e-5, 1e-8)] == [
        "5.73 deg",
        "3.44 arcmin",
        "2.06 arcsec",
        "2.06 mas",
    ]
    assert frequency_text(8.085e9) == "8.085 GHz"


@pytest.mark.parametrize(("spread", "digits"), [(0.0123, 3), (1.2, 1), (12.0, 0), (0.00091, 5), (0.0, 6)])
def test_digits_show_two_figures_of_the_uncertainty(spread: float, digits: int) -> None:
    assert digits_after_point(spread) == digits


def test_plain_numbers_have_no_exponents() -> None:
    assert [plain(x) for x in (263.4, 12.34, 9.96, 0.0123, -1.0)] == ["263", "12", "10", "0.012", "-1.0"]
    assert plain(263.4, 2, "+") == "+263"
    assert [percent(x) for x in (2.634, 0.0996, 1e-4)] == ["263 %", "10 %", "0.010 %"]
    assert unit_for([1.0], FLUXES).text(1234.5) == "1234"  # half to even, as round has it


def test_a_table_has_text_to_the_left_and_numbers_to_the_right() -> None:
    table = align([["name", "unit", "value"], ["flux", "Jy", "1.25"], ["x", "arcsec", "-10.5"]])
    assert table.splitlines() == [
        "name  unit    value",
        "-------------------",
        "flux  Jy       1.25",
        "x     arcsec  -10.5",
    ]


def test_an_unknown_argument_is_refused_with_its_nearest_neighbour() -> None:
    check_names(["cell"], ["cell", "pixels"], "image")
    with pytest.raises(InputError, match=r"image has no argument 'pixel'; did you mean 'pixels'\? \(it has"):
        check_names({"pixel": 3}, ["cell", "pixels"], "image")


def test_values_of_a_table_share_a_unit() -> None:
    """That of the largest, of which it is at least 1; a negative value counts as its size."""
    assert unit_for([0.29, 0.0096], FLUXES).name == "mJy"
    assert unit_for([-2.9, 0.0096], FLUXES).name == "Jy"
    assert range_text(1.0 - 3e-6, 1.0 - 3e-6, FLUXES) == "1 Jy"
    assert range_text(0.9997, 0.9997, FLUXES) == "999.7 mJy"
    assert unit_for([0.0, float("nan")], FLUXES).name == "uJy"
    assert unit_for([np.deg2rad(2.0), np.deg2rad(1e-6)], ANGLES).text(np.deg2rad(1.5)) == "1.5"
    assert range_text(46.27, 3728.0, LENGTHS) == "0.04627 to 3.728 km"
    assert range_text(8.085e9, 8.085e9, FREQUENCIES, 6) == "8.085 GHz"


def test_text_without_a_unit() -> None:
    """An angle in text needs its unit: 20 rad are no phase that anybody means."""
    assert in_unit("20", "s", "interval") == 20.0
    assert in_unit("180 deg", "rad", "phase") == pytest.approx(np.pi, rel=1e-15)
    assert in_unit(0.5, "rad", "phase") == 0.5
    with pytest.raises(InputError, match=r"phase '20' is not understood; write .* such as deg or arcsec"):
        in_unit("20", "rad", "phase")
    with pytest.raises(InputError, match="average_time '20' is not understood"):
        in_unit("20", "s", "average_time", unit_needed=True)


def test_counts_with_their_nouns() -> None:
    assert [number_of(n, "block") for n in (0, 1, 3)] == ["0 blocks", "1 block", "3 blocks"]
