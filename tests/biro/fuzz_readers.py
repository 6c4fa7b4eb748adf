"""Readers of files, tiny files that each takes, and how these are mutated; for `fuzz.py` and its tests."""

from __future__ import annotations

import io
import json
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from biro.beams.zernike import read_zernike
from biro.files.signed import read_signed, write_signed
from biro.flagging.strategy import read_strategy
from biro.imaging.fits import read_image
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.samples import Provenance
from biro.inference.samplers.emcee_chain import ChainFile
from biro.inference.samplers.nuts_draws import STATS, NutsDrawsFile
from biro.io.gain_files import read_gains
from biro.io.ionosphere import read_ionosphere
from biro.io.sky_files import read_sky
from biro.io.uvfits.read import read_uvfits
from biro.models import read_model
from biro.models.files import read_bbs, read_tigger
from biro.models.files.difmap import read_difmap
from biro.models.files.oskar import read_oskar
from biro.models.quantities.parameter import Column
from biro.run.record import read_record
from biro.simulation.telescopes import read_antennas

EXAMPLES = Path(__file__).parents[2] / "docs" / "model_files.md"
WORDS = (
    *("name", "type", "point", "gaussian", "east", "north", "ra", "dec", "I", "Q", "prior", "uniform", "low"),
    *("high", "unit", "tie", "spectral_index", "ref_freq", "emaj", "ratio", "pa", "[[source]]", "[[image]]"),
    *("[sky]", "[beam]", "[noise]", "[[constraint]]", "order", "bounds", "Jy", "1e999", "nan", "0x", "inf"),
    *("Format = ", "#format:", "MajorAxis", "ReferenceFrequency", "SpectralIndex", "LogarithmicSI", "true"),
    *("NAXIS", "BITPIX", "CTYPE1", "RA---SIN", "CRPIX1", "BUNIT", "Jy/beam", "END", "XTENSION", "ZIMAGE"),
    *("RA", "DEC", "Total_flux", "DC_Maj", "Spec_Indx", "int_flux", "psf_a", "TFORM1", "TTYPE1", "TFIELDS"),
    *("GROUPS", "GCOUNT", "PCOUNT", "PTYPE1", "AIPS AN", "AIPS FQ", "COMPLEX", "STOKES", "BASELINE", "DATE"),
    *("format", "run_id", "settings", "resumed", "finished", "null", "coordsys", "centre"),
)
NUMBERS = (
    "0",
    "-1",
    "1e999",
    "nan",
    "-0",
    "9" * 400,
    "1000000000",
    "0x7fffffff",
    "1e-320",
    "[]",
    "{}",
    "''",
    "1:2:3",
)
TOKEN = re.compile(rb"[A-Za-z_#]+|[0-9.eE+-]+|[^\s\w]")
SOURCE = b"""[sky]
ref_freq = "1 GHz"
[[source]]
name = "a"
type = "gaussian"
east = { prior = "uniform", low = -1, high = 1, unit = "arcsec" }
north = { tie = "a.east * 2 - (3 mas + a.pa / 4)" }
I = ["1 Jy", "2 mJy"]
emaj = "3 arcsec"
ratio = 0.5
pa = "10 deg"
spectral_index = { I = [-0.7, 0.1] }
[beam]
kind = "gaussian"
fwhm = "1 deg"
ref_freq = "1 GHz"
[noise]
factor = { prior = "log-uniform", low = 0.1, high = 10 }
[[constraint]]
order = ["a.east", "a.north"]
"""
POINT = b'[[source]]\nname = "a"\nra = "1:2:3"\ndec = "4 deg"\nI = "3 Jy"\n'
PRIOR = POINT.replace(b'"3 Jy"', b'{ prior = "normal", mean = "1 Jy", sd = "1 Jy" }')
BBS = b"""Format = Name, Type, Patch, Ra, Dec, I, Q, SpectralIndex='[0.1]', LogarithmicSI, \
ReferenceFrequency='1e8', MajorAxis, MinorAxis, Orientation
 , , P, 1:2:3, 4.5.6
a,POINT,P,08:28:05.152,39.35.08.511,0.5,,[-0.07,-0.08],false,125584411.6,,,
b,GAUSSIAN,,1h2m3s,-4d5m6s,2,1,[],true,,83.5,40.25,-30
"""
TIGGER = b"""#format: name ra_h ra_m ra_s dec_d dec_m dec_s i q u v spi rm emaj_s emin_s pa_d freq0 pol_frac
a 12 29 6.7 -0 03 08.6 2.5 0.1 0.2 -0.3 -0.7 0 3 2 10 1.4e9 10%
"""
CATALOGUE = b"""# Reference frequency of the detection ("ch0") image: 1.40000e+08 Hz
# Equinox : 2000.0

# Gaus_id, Source_id, RA, DEC, Total_flux, Total_Q, DC_Maj, DC_Min, DC_PA, S_Code, Spec_Indx
0, 0, 187.25, 2.05, 1.5, 0.1, 0.002, 0.001, 40.0, S, -0.7
1, -1, 187.50, 2.10, 0.25, nan, 0.0, 0.0, 0.0, C,
"""
AEGEAN = b"""island,source,ra,dec,peak_flux,int_flux,a,b,pa,psf_a,psf_b,psf_pa
3,0,187.25,2.05,1.2,1.5,5.0,4.0,0.0,4.0,4.0,0.0
"""


IONOSPHERE = b"""# of two antennas
time antenna tec rm
5.1e9 A 7.1 0.9
5.1e9,B,7.0,0.8
"""


def catalogue_seeds() -> list[bytes]:
    """A catalogue of each program, and one in FITS."""
    from astropy.io import fits

    names = ("RA", "DEC", "Total_flux", "DC_Maj", "DC_Min", "DC_PA")
    columns = [fits.Column(name, "D", unit="deg", array=[1.0, 2.0]) for name in names if name != "Total_flux"]
    columns += [fits.Column("Total_flux", "E", unit="mJy", array=[1.0, 2.0])]
    columns += [
        fits.Column("Source_Name", "4A", array=["a", "b"]),
        fits.Column("Source_id", "J", array=[0, -1]),
    ]
    return [CATALOGUE, AEGEAN, _bytes(fits.BinTableHDU.from_columns(columns).writeto)]


def uvfits_seed() -> bytes:
    """Two groups of two channels and one correlation of three antennas."""
    from astropy.io import fits

    data = np.ones((2, 1, 1, 2, 1, 3), np.float32)
    names = ["UU---SIN", "VV---SIN", "WW---SIN", "BASELINE", "DATE"]
    given = [[1e-6, 2e-6], [1e-6, 0.0], [0.0, 0.0], [258.0, 259.0], [2455197.625, 2455197.625]]
    groups = fits.GroupsHDU(fits.GroupData(data, parnames=names, pardata=given, bitpix=-32))
    axes = (("COMPLEX", 1.0), ("STOKES", -1.0), ("FREQ", 1.4e9), ("RA", 187.7), ("DEC", 12.4))
    for i, (name, value) in enumerate(axes, start=2):
        groups.header.update(
            {f"CTYPE{i}": name, f"CRVAL{i}": value, f"CRPIX{i}": 1.0, f"CDELT{i}": -1.0 if i == 3 else 1.0}
        )
    antennas = fits.BinTableHDU.from_columns(
        [
            fits.Column("ANNAME", "8A", array=["A", "B", "C"]),
            fits.Column("STABXYZ", "3D", array=np.arange(9.0).reshape(3, 3) * 100),
            fits.Column("NOSTA", "J", array=[1, 2, 3]),
        ],
        name="AIPS AN",
    )
    antennas.header.update({"EXTVER": 1, "TIMSYS": "UTC", "ARRAYX": 6.4e6})
    return _file("data.uvfits", fits.HDUList([groups, antennas]).writeto)


def fits_seeds() -> list[bytes]:
    """An image, a cube with a table of beams, and a compressed one, all tiny."""
    from astropy.io import fits

    cards = {
        **{"CTYPE1": "RA---SIN", "CRVAL1": 10.0, "CDELT1": -0.1, "CRPIX1": 3.0, "CUNIT1": "deg"},
        **{"CTYPE2": "DEC--SIN", "CRVAL2": 5.0, "CDELT2": 0.1, "CRPIX2": 3.0, "CUNIT2": "deg"},
        "RADESYS": "ICRS",
    }
    freq = {"CTYPE3": "FREQ", "CRVAL3": 1e9, "CDELT3": 1e8, "CRPIX3": 1.0}
    beams = [fits.Column(name, "1E", unit="deg", array=[0.5, 0.4]) for name in ("BMAJ", "BMIN", "BPA")]
    beams += [fits.Column("CHAN", "1J", array=[0, 1]), fits.Column("POL", "1J", array=[0, 0])]
    plain, per_beam = (
        fits.Header(list({**cards, "BUNIT": unit}.items())) for unit in ("Jy/pixel", "Jy/beam")
    )
    per_beam.update({**freq, "CASAMBM": True})
    table = fits.BinTableHDU.from_columns(beams, name="BEAMS")
    lists = [
        [fits.PrimaryHDU(np.ones((4, 4), np.float32), plain)],
        [fits.PrimaryHDU(np.ones((2, 4, 4), np.int16), per_beam), table],
        [fits.PrimaryHDU(), fits.CompImageHDU(np.ones((8, 8), np.int32), plain)],
    ]
    return [_bytes(fits.HDUList(hdus).writeto) for hdus in lists]


def _bytes(write: Callable[[io.BytesIO], Any]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def _file(name: str, write: Callable[[Path], Any]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def posterior_seed() -> bytes:
    """A posterior of six samples."""
    rng = np.random.default_rng(1)
    made = Posterior(
        columns=(Column("a.I", "Jy"), Column("a.pa", "deg", period=180.0)),
        samples=rng.normal(size=(6, 2)),
        log_likelihood=np.zeros(6),
        log_prior=np.zeros(6),
        provenance=Provenance("emcee", 1, {"n_step": 3}),
        effective=np.full(2, 6.0),
        log_weight=np.full(6, -np.log(6.0)),
        log_evidence=1.0,
        log_evidence_err=0.1,
    )
    return _file("posterior.nc", made.save)


def chain_seed() -> bytes:
    """A chain of three steps of four walkers."""
    from emcee.backends import Backend

    def write(path: Path) -> None:
        backend = Backend()
        backend.reset(4, 2)
        backend.chain, backend.log_prob = np.zeros((3, 4, 2)), np.zeros((3, 4))
        backend.blobs, backend.iteration = np.zeros((3, 4)), 3
        backend.random_state = np.random.RandomState(1).get_state()
        file = ChainFile(path, "run")
        file.centre = np.zeros(2)
        file.append(backend, now=True)

    return _file("chain.bin", write)


def draws_seed() -> bytes:
    """Draws of two chains."""
    arrays = {"z": np.zeros((2, 3, 2)), "middle": np.zeros(2), "factor": np.eye(2), "last": np.zeros((2, 2))}
    arrays |= {"stats": np.zeros((2, 3), STATS), "scale": np.ones(2)}
    return _bytes(lambda buffer: np.savez(buffer, **arrays, n_tuned=3, n_gradient=9, run_id="run"))


def record_seed() -> bytes:
    """The record of a run."""
    record = {
        "format": 1,
        "run_id": "run",
        "settings": {"seed": 1, "options": {}},
        "resumed": [],
        "facts": {},
    }
    return json.dumps(record | {"finished": None, "started": "now"}).encode()


def read_posterior(path: Path) -> None:
    """Load, and work out what every command prints."""
    str(Posterior.load(path).summary())


def read_run(path: Path) -> None:
    """The record alone."""
    path.rename(path.with_name("run.json"))
    read_record(path.parent)


def checkpoint_seed() -> bytes:
    """A checkpoint signed with a key of this user."""
    return _file("checkpoint", lambda path: write_signed(path, "run", b"payload"))


def antenna_seed() -> bytes:
    """Three antennas about a centre."""
    return b"# coordsys = local\n# centre = 20 -30 1000\n0 0 0 12 A\n10,0,0,12,B\n0 10 0 12 C\n"


def ionosphere_seed() -> bytes:
    """Electron contents above two antennas at two times."""
    stream = io.BytesIO()
    names = np.array(["A", "B"])
    np.savez(stream, time=np.array([5.1e9, 5.2e9]), antenna_names=names, tec=np.ones((2, 2)))
    return stream.getvalue()


def strategy_seeds() -> list[bytes]:
    page = (EXAMPLES.parent / "how_to" / "flag.md").read_bytes()
    return [page.split(b"```toml\n")[1].split(b"```")[0], b"[spectra]\nwidth = 13\n"]


DIFMAP = b"""! Center RA: 12 29 06.6997  Dec: +02 03 08.598
! Flux (Jy) Radius (mas)  Theta (deg)  Major (mas)  Axial ratio   Phi (deg) T Freq (Hz) SpecIndex
  2.5v 0.3 -120.5 0.2 0.5 30 1 1.5e10 0
  0.5 1.5 45
"""
OSKAR = b"""# RA, Dec, I, Q, U, V, freq0, spix, RM, maj, min, pa
187.25 2.05 1.5 0.1 0 0 1.4e9 -0.7 0 2.5 1.5 30
10,20,3
"""
ZERNIKE = b"""index = "noll"
radius = "2 deg"
[[plane]]
freq = "1.4 GHz"
xx = { real = [1.0, 0.1], imag = [0.0] }
yy = { real = [1.0] }
"""


def gains_seed() -> bytes:
    """Gains of two antennas at two times."""
    gain = np.ones((2, 2, 1, 2), complex)
    arrays = {"time": np.array([5.1e9, 5.2e9]), "freq": np.array([1.4e9]), "gain": gain}
    names = np.array(["A", "B"])
    return _bytes(lambda buffer: np.savez(buffer, **arrays, antenna_names=names, usable=gain != 0))


READERS: dict[str, tuple[str, Callable[[Path], Any], Callable[[], list[bytes]]]] = {
    "toml": (
        "model.toml",
        read_model,
        lambda: [SOURCE, POINT, PRIOR, EXAMPLES.read_bytes().split(b"```toml\n")[1]],
    ),
    "bbs": ("list.txt", read_bbs, lambda: [BBS]),
    "tigger": ("list.lsm.txt", read_tigger, lambda: [TIGGER]),
    "catalogue": ("list", read_sky, catalogue_seeds),
    "uvfits": ("data.uvfits", read_uvfits, lambda: [uvfits_seed()]),
    "sky": ("list", read_sky, lambda: [SOURCE, BBS, TIGGER]),
    "fits": ("image.fits", read_image, fits_seeds),
    "posterior": ("posterior.nc", read_posterior, lambda: [posterior_seed()]),
    "chain": ("chain.bin", lambda path: ChainFile(path, "run").restore(), lambda: [chain_seed()]),
    "draws": ("draws.npz", lambda path: NutsDrawsFile(path, "run").read(2, 2), lambda: [draws_seed()]),
    "record": ("record", read_run, lambda: [record_seed()]),
    "checkpoint": ("checkpoint", lambda path: read_signed(path, "run"), lambda: [checkpoint_seed()]),
    "antennas": ("antennas.csv", read_antennas, lambda: [antenna_seed()]),
    "strategy": ("flags.toml", read_strategy, strategy_seeds),
    "difmap": ("list.mod", read_difmap, lambda: [DIFMAP]),
    "oskar": ("list.osm", read_oskar, lambda: [OSKAR]),
    "gains": ("gains.npz", read_gains, lambda: [gains_seed()]),
    "zernike": ("beam.toml", read_zernike, lambda: [ZERNIKE]),
    "ionosphere": ("iono", read_ionosphere, lambda: [IONOSPHERE, ionosphere_seed()]),
}


def with_other_words(data: bytes, rng: random.Random, *, keep_lengths: bool) -> bytes:
    """The file with a few words or numbers replaced, also by odd ones; cards of FITS keep their length."""
    places = [match.span() for match in TOKEN.finditer(data)]
    n = min(len(places), rng.choice((1, 1, 2, 4)))
    for start, end in sorted(rng.sample(places, n), reverse=True):
        new = rng.choice((*WORDS, *NUMBERS, "")).encode()
        if keep_lengths:
            new = new.ljust(end - start)[: end - start]
        data = data[:start] + new + data[end:]
    return data


def with_other_bytes(data: bytes, rng: random.Random) -> bytes:
    """The file cut short, with bytes changed, removed, or repeated."""
    if not data:
        return data
    at, size = rng.randrange(len(data)), rng.choice((1, 1, 2, 8, 64, 4096))
    match rng.randrange(4):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + rng.randbytes(size) + data[at + size :]
        case 2:
            return data[:at] + data[at + size :]
        case _:
            return data[:at] + data[at : at + size] * rng.choice((2, 20)) + data[at + size :]
