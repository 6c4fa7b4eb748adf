"""Model files that between them use every kind of source, beam, antenna term and noise."""

from __future__ import annotations

PLACE = """
east = { prior = "uniform", low = "-60 arcsec", high = "60 arcsec" }
north = { prior = "uniform", low = "-60 arcsec", high = "60 arcsec" }
I = { prior = "uniform", low = "0.5 Jy", high = "2 Jy" }
"""
POLARISED = """
pol_fraction = { prior = "uniform", low = 0, high = 0.3 }
pol_angle = { prior = "uniform", low = "0 deg", high = "180 deg" }
v_fraction = 0.01
"""
SIZE = 'emaj = { prior = "uniform", low = "10 arcsec", high = "40 arcsec" }\nratio = 0.6\npa = "35 deg"\n'


def source(rest: str, name: str = "s", place: str = PLACE) -> str:
    """A source with free position and flux, and what else is given."""
    return f'[[source]]\nname = "{name}"\n{place}{rest}\n'


def free(mean: float, sd: float, unit: str = "") -> str:
    """A normal prior."""
    return f'{{ prior = "normal", mean = {mean}, sd = {sd}{f", unit = {unit!r}" if unit else ""} }}'


POINTS = source('spectral_index = -0.7\nref_freq = "1.4 GHz"', "a") + source("", "b") + source(POLARISED, "c")
SHAPES = {
    "point": "",
    "gaussian": f'type = "gaussian"\n{SIZE}',
    "gaussian-of-phase-centre": f'type = "gaussian"\nframe = "phase_centre"\n{SIZE}',
    "disc": f'type = "disc"\n{SIZE}',
    "limb-darkened-disc": f'type = "limb-darkened-disc"\nlimb_darkening = 0.4\n{SIZE}',
    "ring": f'type = "ring"\nblur = "4 arcsec"\n{SIZE}',
    "annulus": f'type = "annulus"\ninner_ratio = 0.5\n{SIZE}',
    "sphere": f'type = "sphere"\n{SIZE}',
    "m-ring": f'type = "m-ring"\nbeta_re = [{free(0.1, 0.05)}, 0.02]\nbeta_im = [0.05, 0.01]\n{SIZE}',
    "crescent": f'type = "crescent"\ninner_ratio = 0.6\noffset = 0.4\nhole_pa = "20 deg"\n{SIZE}',
    "exponential": f'type = "exponential"\n{SIZE}',
    "sersic": f'type = "sersic"\nn = {{ prior = "uniform", low = 1, high = 4 }}\n{SIZE}',
    "beta-model": f'type = "beta-model"\nbeta = 0.7\n{SIZE}',
    "shapelets": 'type = "shapelets"\nscale = "9 arcsec"\ncoefficients = [0.1, -0.2, 0.05, 0.03, 0.02]\n',
    "core-halo": 'type = "core-halo"\nfwhm = "30 arcsec"\ncore_fraction = 0.3\ncore_fwhm = "5 arcsec"\n',
    "gradient-gaussian": f'type = "gradient-gaussian"\nref_freq = "1.4 GHz"\ngradient_along = 0.3\n{SIZE}',
}
SPECTRA = {
    "curved": "spectral_index = [-0.7, 0.1]",
    "log10": "log10_spectrum = [-0.7, 0.1]",
    "polynomial": "polynomial = [-0.7, 0.1]",
    "by-stokes": "Q = '0.1 Jy'\nspectral_index = { I = -0.7, Q = [0.1, 0.2] }",
    "free-free": (
        'spectral_index = -0.7\nfree_free = { prior = "uniform", low = 0.5, high = 1, unit = "GHz" }'
    ),
    "self-absorbed": 'spectral_index = -0.7\nself_absorption = "1.2 GHz"',
    "line": 'line = { freq = "1.401 GHz", fwhm = "1 MHz", profile = "lorentzian", height = 0.5 }',
    "table": 'table = { freq = ["1 GHz", "1.402 GHz", "2 GHz"], value = [1.2, 1.0, 0.7] }',
    "faraday": f'{POLARISED}rm = {free(30, 5, "rad/m2")}\nrm_width = "4 rad/m2"\nrm_scatter = "2 rad/m2"',
}
LIGHT_CURVE = source(
    'times = ["0 min", "10 min"]\n',
    place=PLACE.replace("I = {", "I = [{").replace('"2 Jy" }', '"2 Jy" }, "1 Jy"]'),
)
BEAMS = {
    "cos3": """[beam]
kind = "cos3"
""",
    "gaussian": """[beam]
kind = "gaussian"
ref_freq = "1.4 GHz"
fwhm = { prior = "normal", mean = 60, sd = 5, unit = "arcmin" }
""",
    "airy": """[beam]
kind = "airy"
diameter = "13.5 m"
[pointing]
east = { prior = "normal", mean = 0, sd = "60 arcsec" }
""",
    "dish": """[beam]
kind = "dish"
fwhm = "60 arcmin"
ref_freq = "1.4 GHz"
squint = "3 arcmin"
squint_pa = "45 deg"
""",
}
ANTENNAS = {
    "feeds-and-leakage": """[feeds]
rotation = "present"
[leakage]
d_x = { prior = "normal", mean = 0, sd = 0.05 }
d_y = "0.01-0.02j"
""",
    "ionosphere": """[ionosphere]
tec = { prior = "normal", mean = 0, sd = 0.01 }
rm = "0.1 rad/m2"
""",
    "gains": """[gain]
amplitude = { prior = "log-normal", sd = 0.1 }
phase = { prior = "normal", mean = 0, sd = "20 deg", per = "5 min" }
""",
}
GAINS = ANTENNAS["gains"]
NOISE = {
    "systematic": "[noise]\nfactor = 1\nsystematic = 0.02\n",
    "of-antennas": '[noise]\nper = "antenna"\nfactor = { prior = "log-normal", sd = 0.5 }\n',
    "additive": '[noise]\nfactor = 1\nadditive = { prior = "uniform", low = 0, high = 50, unit = "mJy" }\n',
    "student-t": '[noise]\ndistribution = "student-t"\n',
    "correlated-in-time": '[noise]\ncorrelation = "time"\n',
    "correlated-in-frequency": '[noise]\ncorrelation = "chan"\n',
}


def all_models() -> dict[str, str]:
    """Model files by name; the name begins with the kind of thing that varies."""
    found = {"points": POINTS, "light-curve": LIGHT_CURVE}
    found |= {f"shape {name}": source(text) + source("", "p") for name, text in SHAPES.items()}
    found |= {f"spectrum {name}": source(f'ref_freq = "1.4 GHz"\n{text}') for name, text in SPECTRA.items()}
    found |= {
        f"beam {name}": source(SHAPES["gaussian"]) + source("", "p") + text for name, text in BEAMS.items()
    }
    found |= {f"antennas {name}": source(POLARISED) + text for name, text in ANTENNAS.items()}
    found |= {f"noise {name}": source("") + text for name, text in NOISE.items()}
    return found
