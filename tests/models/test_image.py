"""Images as models: where pixels are, what they are between planes, what is refused."""

import numpy as np
import pytest

from biro.models import ModelError
from biro.models.components.image import ImageModel

CENTRE = (1.0, 0.5)


def cube(values, freq, **more):
    """A cube of 2 x 2 pixels, one Stokes parameter, all pixels of a plane alike."""
    pixels = np.broadcast_to(np.array(values, float)[None, :, None, None], (1, len(values), 2, 2))
    return ImageModel(pixels, 1e-5, CENTRE, chan_freq=np.array(freq, float), **more)


def test_pixels_lie_where_the_docstring_says():
    image = ImageModel(np.zeros((1, 1, 8, 8)), 1e-3, CENTRE, offset=(2e-4, -3e-4))
    l, m = image.axes
    # Column 6 is two cells west of column 4 = N/2, row 1 is three cells south.
    assert l[6] == pytest.approx(2e-4 - 2e-3, abs=1e-18)
    assert m[1] == pytest.approx(-3e-4 - 3e-3, abs=1e-18)
    assert (image.n_stokes, image.n_freq, image.n_pixel) == (1, 1, 8)


@pytest.mark.parametrize("freq", [1.0e9, 1.2e9, 1.45e9, 1.9e9, 2.1e9])
def test_a_power_law_is_followed_exactly_and_a_line_linearly(freq):
    planes = np.array([1.0e9, 1.5e9, 2.0e9])
    law = cube(3.0 * (planes / 1.2e9) ** -0.7, planes, interpolation="spectral-index")
    np.testing.assert_allclose(law.at(freq), 3.0 * (freq / 1.2e9) ** -0.7, rtol=1e-13)
    line = cube(2.0 - 5e-10 * planes, planes, interpolation="linear")
    np.testing.assert_allclose(line.at(freq), 2.0 - 5e-10 * freq, rtol=1e-12)


def test_no_power_law_leads_through_zero():
    image = cube([-1.0, 3.0], [1e9, 2e9], interpolation="spectral-index")
    np.testing.assert_allclose(image.at(1.25e9), 0.0, atol=1e-15)  # a quarter of the way: -1 + 4/4
    faint = cube([0.0, 2.0], [1e9, 2e9], interpolation="spectral-index")
    np.testing.assert_allclose(faint.at(1.5e9), 1.0)
    negative = cube([-1.0, -4.0], [1e9, 2e9], interpolation="spectral-index")
    np.testing.assert_allclose(negative.at(1.5e9), -(1.5**2), rtol=1e-14)


def test_channels_are_grouped_where_the_image_is_smooth():
    freq = np.array([1.9e9, 0.95e9, 1.4e9, 1.1e9, 1.6e9])
    near = cube([1.0, 2.0, 3.0], [1.0e9, 1.5e9, 2.0e9], interpolation="nearest")
    assert [group.tolist() for group in near.bands(freq)] == [[1, 3], [2, 4], [0]]
    np.testing.assert_array_equal(near.at(1.76e9), 3.0)
    line = cube([1.0, 2.0, 3.0], [1.0e9, 1.5e9, 2.0e9], interpolation="linear")
    assert [group.tolist() for group in line.bands(freq)] == [[1, 2, 3], [0, 4]]
    one = ImageModel(np.ones((1, 1, 2, 2)), 1e-5, CENTRE)
    assert [group.tolist() for group in one.bands(freq)] == [[0, 1, 2, 3, 4]]


def test_a_cube_reaches_half_a_spacing_beyond_its_planes():
    line = cube([1.0, 2.0], [1.0e9, 1.5e9])
    line.bands(np.array([0.75e9, 1.75e9]))
    with pytest.raises(ModelError, match="740 to 1000 MHz reach beyond the planes of the image, 1000"):
        line.bands(np.array([0.74e9, 1.0e9]))
    near = cube([1.0, 2.0], [1.0e9, 1.5e9], interpolation="nearest")
    assert len(near.bands(np.array([0.1e9, 9e9]))) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pixels": np.zeros((1, 1, 4, 6))}, "pixels must have shape"),
        ({"pixels": np.zeros((1, 1, 5, 5))}, "N even, got"),
        ({"pixels": np.zeros((2, 1, 4, 4))}, "n_stokes 1 or 4"),
        ({"pixels": np.zeros((4, 4))}, "pixels must have shape"),
        ({"pixels": np.full((1, 1, 4, 4), np.nan)}, "16 of 16 are not"),
        ({"pixels": np.zeros((1, 2, 4, 4))}, "chan_freq is needed, for there are 2 planes"),
        ({"pixels": np.zeros((1, 2, 4, 4)), "chan_freq": np.array([2e9, 1e9])}, "must ascend"),
        ({"chan_freq": np.array([-1.0])}, "above 0 Hz"),
        ({"cell": 0.0}, "cell must be above 0"),
        ({"centre": (0.0, 2.0)}, r"\|dec\| <= pi/2"),
        ({"interpolation": "cubic"}, "one of nearest, linear, spectral-index"),
        ({"pixels": np.ones((1, 1, 4, 4)), "cell": 0.5}, "7 pixels with brightness lie beyond the horizon"),
    ],
)
def test_what_cannot_be_meant_is_refused(change, message):
    given = {"pixels": np.zeros((1, 1, 4, 4)), "cell": 1e-3, "centre": CENTRE}
    with pytest.raises(ModelError, match=message):
        ImageModel(**{**given, **change})


def test_an_image_of_the_whole_sky_has_dark_corners():
    pixels = np.zeros((1, 1, 4, 4))
    pixels[0, 0, 2, 2] = 1.0
    assert ImageModel(pixels, 0.5, CENTRE).axes[0][0] == 1.0
