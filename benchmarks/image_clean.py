"""Compare images of a radio galaxy with those of WSClean's multiscale CLEAN, from the same Measurement Sets.

    python benchmarks/image_clean.py TRUTH [--quick] [--methods clean starlet entropy tv samples]
                                     [--samples mgvi] [--beam ARCSEC ARCSEC DEG ...] [--output FILE]

TRUTH is a FITS image (512 x 512 pixels of 3C353), taken as Jy/pixel; without it, as in a quick run, two
Gaussians stand for it. VLA-A and VLA-B observe it for six hours each at 1.4 GHz, with noise a thousandth of
the brightest pixel of the dirty image. Each image is compared with the truth at the resolution of CLEAN's
restored images, Jy/beam, with three weightings of the data:

    error           rms of the difference over the rms of the truth, per cent
    dynamic range   peak of the truth over the rms of the difference where the truth is below 1e-4 of its peak

"clean" is the restored image, "clean model" its components at the same resolution, without residuals. Where
wsclean is not installed, that is printed, and `--beam` gives resolutions (axes and angle of each).
Seconds are those of the CPU, of all threads of a whole run (two threads for wsclean, which also reads).
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from astropy.io import fits
from common.machine import machine, machine_slug, print_machine
from common.options import make_parser, output_path, parse
from common.results import write
from common.types import Line
from numpy.typing import NDArray

import biro
from biro.image_posterior.field import ImageField
from biro.image_posterior.operator import ImageOperator
from biro.io.measurement_set import create_ms
from biro.models import ImagePrior, Noise, PointSource, SkyModel
from biro.observation.join import join
from biro.observation.stokes import PSEUDO_I, form_stokes
from biro.simulation import Channels, Track

Array = NDArray[np.float64]
DYNAMIC_RANGE, FLUX, PIXELS_OF_BEAM = 1e3, 50.0, 3.5
WEIGHTINGS = ("natural", "briggs 0.5", "briggs 0")
METHODS = ("clean", "starlet", "entropy", "tv", "samples")


@dataclass(frozen=True)
class Sky:
    """What is observed: Jy/pixel (N, N), and the width of a pixel, rad."""

    pixels: Array
    cell: float

    @property
    def size(self) -> int:
        return len(self.pixels)


@dataclass(frozen=True)
class Beam:
    """FWHM axes in rad, and position angle from north through east, rad."""

    major: float
    minor: float
    angle: float

    def convolved(self, image: Array, cell: float) -> Array:
        """An image in Jy/pixel in Jy/beam."""
        n = image.shape[-1]
        v, u = np.meshgrid(np.fft.fftfreq(2 * n, cell), np.fft.rfftfreq(2 * n, cell), indexing="ij")
        # Pixel x grows to the west: l = -x cell.
        along = -u * np.sin(self.angle) + v * np.cos(self.angle)
        across = -u * np.cos(self.angle) - v * np.sin(self.angle)
        scale = np.pi**2 / (4.0 * np.log(2.0))
        taper = np.exp(-scale * ((self.major * along) ** 2 + (self.minor * across) ** 2))
        area = np.pi * self.major * self.minor / (4.0 * np.log(2.0)) / cell**2
        padded = np.fft.rfft2(image, s=(2 * n, 2 * n))
        return np.asarray(area * np.fft.irfft2(padded * taper, s=(2 * n, 2 * n))[:n, :n])


def sky_of(path: Path | None, size: int, cell: float) -> Sky:
    """The sky of a file, or two Gaussians of which one is narrow."""
    if path is not None:
        pixels = np.asarray(fits.getdata(path), np.float64).squeeze()
    else:
        y, x = np.indices((size, size)) - size / 2
        pixels = np.exp(-0.5 * (x**2 + y**2) / (size / 12) ** 2)
        pixels += 5.0 * np.exp(-0.5 * ((x - size / 6) ** 2 + y**2) / 1.5**2)
    return Sky(pixels * FLUX / pixels.sum(), cell)


def observed(truth: Callable[[float], Sky], hours: float, step: float) -> tuple[list[biro.Observation], Sky]:
    """The observations of both configurations with noise."""
    nothing = SkyModel([PointSource("nothing", east="0 arcsec", north="0 arcsec", I="0 Jy")])
    made = [
        biro.simulate(
            name, nothing, phase_centre="17h20m28s +40d00m00s", times=Track(day, 3600.0 * hours, step),
            channels=Channels(1.4e9, 2e6, 2), noise=1.0, seed=seed, progress=False,
        )
        for name, day, seed in (("VLA-A", "2026-03-01T10:00", 1), ("VLA-B", "2026-07-01T02:00", 2))
    ]  # fmt: skip
    longest = max(float(np.abs(one.partitions[0].uvw[:, :2]).max()) for one in made) * 1.4e9 / 299792458.0
    sky = truth(1.0 / longest / PIXELS_OF_BEAM)
    models, peak = [], 0.0
    for one in made:
        (part,), _ = form_stokes(one.partitions, PSEUDO_I)
        place = ImageField(sky.size, sky.cell, part.phase_centre)
        operator = ImageOperator(replace(one, partitions=(part,)), place, backend="cpu")
        models.append(operator.predict(sky.pixels[None])[0])
        peak += operator.adjoint([models[-1]], weighted=True)[0]
    n = sum(model.size for model in models)
    # Two hands make Stokes I: sigma of each is sqrt(2) times that of I.
    noise = float(np.max(peak)) / (2.0 * n) / DYNAMIC_RANGE * np.sqrt(2.0 * n)
    done = []
    for one, model in zip(made, models, strict=True):
        (part,) = one.partitions
        hands = np.array([name in ("RR", "LL", "XX", "YY") for name in part.corr_type])
        vis = part.vis * noise + model * hands
        done.append(replace(one, partitions=(replace(part, vis=vis, weight=part.weight / noise**2),)))
    return done, sky


def cleaned(
    paths: list[Path], sky: Sky, folder: Path, weighting: str
) -> tuple[float, Array, Array, Beam] | None:
    """CPU seconds, restored image, model at the same resolution, and beam of WSClean; None without it."""
    if shutil.which("wsclean") is None:
        return None
    asec = np.degrees(sky.cell) * 3600.0
    command = [
        "wsclean", "-j", "2", "-size", str(sky.size), str(sky.size), "-scale", f"{asec}asec", "-pol", "I",
        "-multiscale", "-mgain", "0.7", "-auto-mask", "3", "-auto-threshold", "0.5", "-niter", "500000",
        "-nmiter", "30", "-weight", *weighting.split(), "-name", str(folder / "clean"), *map(str, paths),
    ]  # fmt: skip
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode:
        raise RuntimeError(f"wsclean ended with {done.returncode}: {(done.stdout + done.stderr)[-400:]}")
    with fits.open(folder / "clean-image.fits") as hdus:
        restored, header = np.asarray(hdus[0].data, np.float64).squeeze(), hdus[0].header
    model = np.asarray(fits.getdata(folder / "clean-model.fits"), np.float64).squeeze()
    beam = Beam(*(float(np.radians(header[key])) for key in ("BMAJ", "BMIN", "BPA")))
    return seconds, restored, beam.convolved(model, sky.cell), beam


def fitted(data: biro.Observation, sky: Sky, method: str, args: object) -> tuple[float, biro.ImagePosterior]:
    """CPU seconds of all threads, and image of biro."""
    cell = f"{np.degrees(sky.cell) * 3600.0} arcsec"
    kind = "correlated-field" if method == "samples" else "smooth"
    prior = ImagePrior("sky", prior=kind, size=sky.size, cell=cell)
    options: dict[str, object] = {}
    if method == "samples":
        options = {"method": args.samples, "n_samples": 8, "n_pairs": 4}
    else:
        prior = replace(prior, regularisation=method)
    model = SkyModel([], images=[prior], noise=Noise(factor=1.0))
    began = time.process_time()
    found = biro.fit_image(data, model, backend=args.device, progress=False, **options)
    return time.process_time() - began, found


def figures(image: Array, truth: Array) -> Line:
    """Error and dynamic range of an image in Jy/beam."""
    away, faint = image - truth, truth < 1e-4 * truth.max()
    ratio = float(truth.max() / np.sqrt(np.mean(away[faint] ** 2))) if faint.any() else None
    return {"error": 100.0 * float(np.linalg.norm(away) / np.linalg.norm(truth)), "dynamic_range": ratio}


def compared(args: object, folder: Path) -> Iterator[Line]:
    """A line for each method and resolution, in the order of `METHODS`."""
    size, hours, step = (48, 1.0, 600.0) if args.quick else (512, 6.0, 120.0)
    both, sky = observed(lambda cell: sky_of(args.truth, size, cell), hours, step)
    beams: dict[str, Beam] = {}
    for axes in np.reshape(args.beam or [], (-1, 3)):
        beams[f"{axes[0]:.3g} arcsec"] = Beam(*np.radians(axes / [3600.0, 3600.0, 1.0]))
    paths = [folder / f"{name}.ms" for name in "ab"]
    for path, one in zip(paths, both, strict=True) if "clean" in args.methods else ():
        create_ms(path, one)
    for weighting in WEIGHTINGS if "clean" in args.methods else ():
        clean = cleaned(paths, sky, folder, weighting)
        if clean is None:
            print("wsclean is not installed (Debian: apt-get install wsclean): no CLEAN here")
            break
        seconds, *images, beam = clean
        beams[weighting] = beam
        axes = [float(np.degrees(beam.major)) * 3600, float(np.degrees(beam.minor)) * 3600]
        about = {"resolution": weighting, "seconds": seconds, "beam": [*axes, float(np.degrees(beam.angle))]}
        for name, image in zip(("clean", "clean model"), images, strict=True):
            yield {"method": name} | about | figures(image, beam.convolved(sky.pixels, sky.cell))
    data = join(both)
    for method in METHODS[1:]:
        if method in args.methods:
            seconds, found = fitted(data, sky, method, args)
            yield from of_biro(method, seconds, found, sky, beams)


def of_biro(
    method: str, seconds: float, found: biro.ImagePosterior, sky: Sky, beams: dict[str, Beam]
) -> Iterator[Line]:
    """A line for each resolution; that of natural weights where there is none."""
    n = 2 * sum(found.n_data)
    about = {
        "method": method,
        "seconds": seconds,
        "reduced_chi2": float(sum(found.chi2)) / n,
        "n_vis": n // 2,
    }
    about |= {"remarks": [text.split(":")[0] for text in found.remarks]}
    for name, beam in (beams or {"natural": Beam(found.beam.major, found.beam.minor, found.beam.pa)}).items():
        expected = beam.convolved(sky.pixels, sky.cell)
        line = about | {"resolution": name} | figures(beam.convolved(found.mean[0], sky.cell), expected)
        yield line if found.is_map else line | of_samples(found, beam, sky, expected)


def of_samples(found: biro.ImagePosterior, beam: Beam, sky: Sky, expected: Array) -> Line:
    """How far the truth is from the mean in standard deviations of the samples, where there is brightness."""
    seen = np.array([beam.convolved(one[0], sky.cell) for one in found.samples])
    pulls = (expected - seen.mean(axis=0)) / seen.std(axis=0)
    bright = expected > 0.01 * expected.max()
    inside = np.mean(np.abs(pulls[bright]) < 1.0)
    return {"inside": float(inside), "rms_pull": float(np.sqrt(np.mean(pulls[bright] ** 2)))}


def main() -> int:
    parser = make_parser(__doc__, device=True)
    parser.add_argument("truth", type=Path, nargs="?")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--samples", choices=("mgvi", "geovi"), default="mgvi")
    parser.add_argument("--beam", type=float, nargs="+")
    args = parse(parser)
    if args.quick:
        args.methods = ("clean", "starlet")
    about, lines = machine(args.device), []
    print_machine(about)
    print(f"{'method':14}{'resolution':13}{'CPU s':>9}{'error %':>9}{'dynamic range':>15}{'chi2/2N':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for line in compared(args, Path(folder)):
            lines.append(line)
            ratio = "-" if line["dynamic_range"] is None else f"{line['dynamic_range']:.0f}"
            print(
                f"{line['method']:14}{line['resolution']:13}{line['seconds']:9.1f}{line['error']:9.3f}{ratio:>15}"
                f"{line.get('reduced_chi2', np.nan):9.4f}",
                flush=True,
            )
            found = {"device": args.device, "quick": args.quick, "machine": about, "images": lines}
            write(output_path(args, "image_clean", f"{machine_slug(about)}.json"), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
