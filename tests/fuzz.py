"""Feeds every reader of files with mutated ones, guided by coverage; run by hand (see CONTRIBUTING.md).

    pip install atheris
    nice python tests/fuzz.py toml --seconds 600

A reader may give something or raise a `BiroError`. Anything else, and whatever takes long or much memory, is
printed once with its trace, and its file is kept in the folder of findings; make a test of it in
tests/biro/test_hostile_files.py. A crash of the interpreter ends the program; libFuzzer then keeps the file.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris
import numpy as np

sys.path.pop(0)  # this folder, whose tests/biro is not the package
with atheris.instrument_imports(include=["biro", "tomllib", "zipfile", "numpy.lib"]):
    import biro
    from biro.errors import BiroError
    from biro.files.signed import read_signed, write_signed
    from biro.flagging.strategy import read_strategy
    from biro.images.fits import read_image
    from biro.ionosphere import read_ionosphere
    from biro.models import read_model
    from biro.models.files import read_bbs, read_tigger
    from biro.models.quantities.parameter import Column
    from biro.posterior.posterior import Posterior
    from biro.posterior.samples import Provenance
    from biro.run.record import read_record
    from biro.samplers.emcee_chain import ChainFile
    from biro.samplers.nuts_draws import STATS, DrawsFile
    from biro.simulation.telescopes import read_antennas
    from biro.sky_files import read_sky
    from biro.uvfits.read import read_uvfits

MEMORY = 6 << 30
"""Bytes of address space; numba and its libraries take two thirds of a gigabyte of them."""
SLOW = 5.0
EXAMPLES = Path(__file__).parents[1] / "docs" / "model_files.md"
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
BINARY = ("posterior", "chain", "draws", "checkpoint")
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
OSKAR = b"""# (RaD, DecD, I, Q, RefFreq='1e8', SpectralIndex, Spec_Curv, Maj, Min, PA, RM) = format
1.5, -20.5, 2.5, 0.1, , [-0.7, 0.05], , 60, 30, 10, 5
2.5 30:20:10.5 1 0 1.2e8 -0.6 0.1 , , ,
"""
HTML = b"""<HTML><BODY mdltype=SkyModel><TABLE><TR mdltype=Source ><TD mdltype=str mdlval="'A'"></TD>
<TD mdltype=Position ><A mdltype=float mdlval="1.4"></A> <A mdltype=float mdlval="0.8"></A></TD>
<TD mdltype=Polarization ><A mdltype=float mdlval="2.5"></A> <A mdltype=float mdlval="0.1"></A></TD>
<TD mdltype=Gaussian mdlattr="shape" ><A mdltype=float mdlval="3e-5"></A> <A mdltype=float mdlval="2e-6"></A>
<A mdltype=float mdlval="2.5"></A></TD> <TD mdltype=SpectralIndex mdlattr="spectrum" >
<A mdltype=list><A mdltype=float mdlval="-0.8"></A></A> <A mdltype=float mdlval="1.4e9"></A></TD></TR></TABLE>
</HTML>
"""
GAUL = b"""# Equinox : 2000.0
# Gaus_id Source_id RA DEC Total_flux DC_Maj DC_Min DC_PA S_Code
0 0 187.25 2.05 1.5 0.002 0.001 40.0 S
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
    "sky": ("list", read_sky, lambda: [SOURCE, BBS, TIGGER, OSKAR, HTML, GAUL]),
    "fits": ("image.fits", read_image, fits_seeds),
    "posterior": ("posterior.nc", read_posterior, lambda: [posterior_seed()]),
    "chain": ("chain.bin", lambda path: ChainFile(path, "run").restore(), lambda: [chain_seed()]),
    "draws": ("draws.npz", lambda path: DrawsFile(path, "run").read(2, 2), lambda: [draws_seed()]),
    "record": ("record", read_run, lambda: [record_seed()]),
    "checkpoint": ("checkpoint", lambda path: read_signed(path, "run"), lambda: [checkpoint_seed()]),
    "antennas": ("antennas.csv", read_antennas, lambda: [antenna_seed()]),
    "strategy": ("flags.toml", read_strategy, strategy_seeds),
    "ionosphere": ("iono", read_ionosphere, lambda: [IONOSPHERE, ionosphere_seed()]),
}


class Target:
    """One reader, and what was found out about it."""

    def __init__(self, name: str, findings: Path) -> None:
        self.file, self.read, _ = READERS[name]
        self.findings = findings
        self.seen: set[str] = set()
        self.count = 0
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))

    def __call__(self, data: bytes) -> None:
        self.count += 1
        path = self.folder / self.file
        path.write_bytes(data)
        begin = time.monotonic()
        try:
            self.read(path)
        except BiroError as error:
            if "\n" in str(error) or len(str(error)) > 1500:
                self._note("long or broken line", data, str(error)[:300])
        except (Exception, RecursionError) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            self._note(f"{type(error).__name__} {last.filename}:{last.lineno}", data, traceback.format_exc())
        if time.monotonic() - begin > SLOW:
            self._note(f"slow, {time.monotonic() - begin:.0f} s", data, "")
        for left in self.folder.iterdir():
            left.unlink()

    def mutate(self, data: bytes, max_size: int, seed: int) -> bytes:
        """Half of the time put a word or an odd number in the place of another, else what libFuzzer does.

        Cards of FITS keep their length.
        """
        rng = random.Random(seed)
        places = [match.span() for match in TOKEN.finditer(data)]
        if rng.random() < 0.5 or not places:
            return atheris.Mutate(data, max_size)
        for start, end in sorted(
            rng.sample(places, min(len(places), rng.choice((1, 1, 2, 4)))), reverse=True
        ):
            new = rng.choice((*WORDS, *NUMBERS, "")).encode()
            if self.file.endswith(".fits"):
                new = new.ljust(end - start)[: end - start]
            data = data[:start] + new + data[end:]
        return data[:max_size]

    def _note(self, what: str, data: bytes, text: str) -> None:
        if what in self.seen:
            return
        self.seen.add(what)
        place = self.findings / f"finding{len(self.seen)}"
        place.write_bytes(data)
        print(f"FOUND {what}: {place} ({len(data)} bytes)\n{text}", flush=True)


def main() -> None:
    """Fuzz one reader for a while."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--findings", type=Path, default=None)
    chosen = parser.parse_args()
    findings = chosen.findings or Path(tempfile.mkdtemp(prefix=f"biro-fuzz-{chosen.reader}-"))
    corpus = findings / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(READERS[chosen.reader][2]()):
        (corpus / f"seed{i}").write_bytes(seed)
    words = findings / "words"
    words.write_text("".join('"' + word.replace('"', '\\"') + '"\n' for word in WORDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.chdir(findings)
    print(f"biro {biro.__version__}, {chosen.reader}: findings in {findings}", flush=True)
    options = [f"-max_total_time={chosen.seconds}", "-rss_limit_mb=0", "-timeout=60", f"-dict={words}"]
    target = Target(chosen.reader, findings)
    mutators: dict[str, Any] = {} if chosen.reader in BINARY else {"custom_mutator": target.mutate}
    atheris.Setup([sys.argv[0], *options, "-max_len=20000", str(corpus)], target, **mutators)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
