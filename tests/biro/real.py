"""Sky models of the real data sets in the reference data, with priors an observer would take."""

CORE_3C273 = """
[[source]]
name = "core"
type = "gaussian"
east = { prior = "normal", mean = 0, sd = 0.1, unit = "arcsec" }
north = { prior = "normal", mean = 0, sd = 0.1, unit = "arcsec" }
I = { prior = "uniform", low = 10, high = 50, unit = "Jy" }
fwhm = { prior = "uniform", low = 0, high = 0.5, unit = "arcsec" }
"""

JET_3C273 = """
[[source]]
name = "jet"
type = "gaussian"
east = { prior = "uniform", low = -25, high = 25, unit = "arcsec" }
north = { prior = "uniform", low = -25, high = 25, unit = "arcsec" }
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }
emaj = { prior = "uniform", low = 0.5, high = 10, unit = "arcsec" }
ratio = { prior = "uniform", low = 0.1, high = 1 }
pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }
"""

TWO_JETS_3C273 = """
[[source]]
name = "jet1"
type = "gaussian"
east = { prior = "normal", mean = -14, sd = 2, unit = "arcsec" }
north = { prior = "normal", mean = -15, sd = 2, unit = "arcsec" }
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }
emaj = { prior = "uniform", low = 0.5, high = 4, unit = "arcsec" }
ratio = { prior = "uniform", low = 0.1, high = 1 }
pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }

[[source]]
name = "jet2"
type = "gaussian"
east = { prior = "normal", mean = -12, sd = 2, unit = "arcsec" }
north = { prior = "normal", mean = -14, sd = 2, unit = "arcsec" }
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }
emaj = { prior = "uniform", low = 4, high = 12, unit = "arcsec" }
ratio = { prior = "uniform", low = 0.1, high = 1 }
pa = { prior = "uniform", low = 0, high = 180, unit = "deg" }
"""


def j1033_core(shape: str) -> str:
    """The core of J1033+6051: "point", "circle" or "ellipse"."""
    position = """
east = { prior = "uniform", low = -0.05, high = 0.05, unit = "mas" }
north = { prior = "uniform", low = -0.05, high = 0.05, unit = "mas" }
"""
    size = {
        "point": "",
        "circle": 'fwhm = { prior = "uniform", low = 0, high = 0.5, unit = "mas" }',
        "ellipse": 'emaj = { prior = "uniform", low = 0.02, high = 0.5, unit = "mas" }\n'
        'ratio = { prior = "uniform", low = 0, high = 1 }\n'
        'pa = { prior = "uniform", low = -90, high = 90, unit = "deg" }',
    }[shape]
    return f"""
[[source]]
name = "core"
type = "{"point" if shape == "point" else "gaussian"}"
{position}
I = {{ prior = "uniform", low = 0.1, high = 1, unit = "Jy" }}
{size}
"""


def j1033_blob(name: str, north: float) -> str:
    """A circular Gaussian some milliarcseconds south of the core."""
    return f"""
[[source]]
name = "{name}"
type = "gaussian"
east = {{ prior = "normal", mean = 0.3, sd = 0.5, unit = "mas" }}
north = {{ prior = "normal", mean = {north}, sd = 0.5, unit = "mas" }}
I = {{ prior = "uniform", low = 0, high = 0.1, unit = "Jy" }}
fwhm = {{ prior = "uniform", low = 0, high = 3, unit = "mas" }}
"""


WSRT_3C343 = """
[[source]]
name = "3C343_1"
type = "point"
east = "0 arcsec"
north = "0 arcsec"
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }

[[source]]
name = "3C343"
type = "point"
east = "-26.82 arcmin"
north = "11.06 arcmin"
I = { prior = "uniform", low = 0, high = 10, unit = "Jy" }
"""
