"""Images whose pixels are fitted, as a user writes them."""

import pytest

from biro.models import Fixed, ImagePrior, ModelError, Normal, SkyModel
from biro.models.files.toml import from_toml

TEXT = """
[[image]]
name = "diffuse"
prior = "smooth"
size = 64
field = "200 uas"
flux = { prior = "normal", mean = "0.6 Jy", sd = "0.1 Jy" }
"""


def test_an_image_with_a_prior_reads_back_from_its_file() -> None:
    sky = from_toml(TEXT)
    assert sky.images == ()
    (image,) = sky.image_priors
    assert image == ImagePrior(
        "diffuse", prior="smooth", size=64, field="200 uas", flux=Normal("0.6 Jy", "0.1 Jy")
    )
    assert image.field == Fixed(200.0, "uas")
    assert from_toml(sky.to_toml()) == sky
    assert SkyModel([], images=[image]) == sky
    assert SkyModel([], image_priors=[image]) == sky


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        (
            'prior = "smoth"',
            r"image 'd': prior: one of smooth, .*, found 'smoth' \(did you mean 'smooth'\?\)",
        ),
        ('prior = "smooth"\nfile = "x.fits"', "file, prior: an image is read from a file or fitted"),
        ('prior = "smooth"\nsize = 63', "size: an even number"),
        (
            'prior = "smooth"\nsize = 64\nfield = "1 arcsec"\ncell = "1 mas"',
            "two of them determine the third",
        ),
        ('prior = "smooth"\ncell = "1 Jy"', "cell: unit 'Jy' is not an angle"),
        (
            'prior = "smooth"\ncell = { prior = "uniform", low = "1 mas", high = "2 mas" }',
            "cell: expected an",
        ),
        ('prior = "smooth"\nflux = "-1 Jy"', "flux: expected a flux above 0"),
        ('prior = "smooth"\nfoo = 1', "unknown key 'foo'"),
        ('prior = "smooth"\nregularisation = "tva"', "regularisation: one of starlet, entropy, tv"),
    ],
)
def test_what_an_image_with_a_prior_cannot_have_is_refused(keys: str, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        from_toml(f'[[image]]\nname = "d"\n{keys}\n')
