"""Count how often evidences choose the sky that data were drawn from: one point, two, or a Gaussian.

    python benchmarks/model_choice.py [--workers 16] [--time-limit 480] [--repeats 20] [--quick]

After the second experiment of Lochner et al. (2015, MNRAS 450, 1308). KAT-7 sees 1 Jy: a point; two points of
0.6 and 0.4 Jy, 1/20 to 1 synthesised beam apart; or a Gaussian with such a major axis, twice the minor;
at a random place, with a random position angle and new noise each time. Each data set is fitted with all
three models by dynesty, and `biro.compare` chooses. The signal-to-noise ratio is that of the flux of a point:
1 Jy times the square root of the sum of the weights. The beam is the Gaussian of the curvature of the natural
PSF, FWHM = sqrt(8 ln 2) / (2 pi sigma_u) with sigma_u the rms of the coordinates in wavelengths.

Results are written as they come, a line for each data set, and a program that runs out of time has done whole
repeats of everything before the last. `python benchmarks/trust_page.py` makes table and picture of them.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
from common.kat7 import observe
from common.options import output_path
from common.processes import each_in_turn, make_pool_parser, one_thread_each
from common.results import write_lines
from common.types import Line, Options
from scipy.constants import speed_of_light

from biro.inference.posterior.comparison import compare
from biro.inference.samplers.sampling import sample
from biro.likelihood.likelihood import Likelihood
from biro.models.files.toml import from_toml
from biro.observation.observation import Observation

TRUTHS = ("point", "two points", "gaussian")
SCALES = (0.05, 0.1, 0.2, 0.35, 0.6, 1.0)
"""Separation, or major axis (FWHM), in synthesised beams."""
RATIOS = (30.0, 100.0, 300.0, 1000.0)
"""Of signal to noise."""
FAST: Options = {"n_live": 100, "batch": 16, "walks": 15, "dlogz": 0.1}
"""Options of dynesty: evidences to 0.6 or so."""
QUICK: Options = FAST | {"n_live": 25, "dlogz": 5.0}
"""Of a quick run, whose evidences are worth nothing."""

_POINT = """
[[source]]
name = "{name}"
type = "{kind}"
east = {{ prior = "uniform", low = -{beam}, high = {beam}, unit = "arcsec" }}
north = {{ prior = "uniform", low = -{beam}, high = {beam}, unit = "arcsec" }}
I = {{ prior = "uniform", low = 0, high = 2, unit = "Jy" }}
"""
_SHAPE = """\
emaj = {{ prior = "uniform", low = 0, high = {most}, unit = "arcsec" }}
ratio = {{ prior = "uniform", low = 0, high = 1 }}
pa = {{ prior = "uniform", low = 0, high = 180, unit = "deg" }}
"""
_NOISE = "\n[noise]\nfactor = 1\n"
_FIXED = """
[[source]]
name = "{name}"
type = "{kind}"
east = "{east!r} arcsec"
north = "{north!r} arcsec"
I = "{flux} Jy"
"""


def models(beam: float) -> dict[str, str]:
    """Return the three hypotheses as model files; places within one beam (arcsec) of the phase centre."""
    one = _POINT.format(name="a", kind="point", beam=beam)
    two = one + _POINT.format(name="b", kind="point", beam=beam)
    gaussian = _POINT.format(name="a", kind="gaussian", beam=beam) + _SHAPE.format(most=2.0 * beam)
    order = '\n[[constraint]]\norder = ["a.I", "b.I"]\n'
    return {"point": one + _NOISE, "two points": two + _NOISE + order, "gaussian": gaussian + _NOISE}


def truth(kind: str, size: float, beam: float, rng: np.random.Generator) -> str:
    """Draw a sky of 1 Jy as a model file; `size` and `beam` in arcsec."""
    east, north = 0.2 * beam * rng.standard_normal(2)
    angle = rng.uniform(0.0, np.pi)
    half = 0.5 * size * np.array([np.sin(angle), np.cos(angle)])
    if kind == "two points":
        places = [("a", 0.6, 0.8 * half), ("b", 0.4, -1.2 * half)]  # about their centre of flux
        each = [
            _FIXED.format(name=n, kind="point", flux=flux, east=float(east + d[0]), north=float(north + d[1]))
            for n, flux, d in places
        ]
        return "".join(each)
    one = _FIXED.format(name="a", kind=kind, flux=1.0, east=float(east), north=float(north))
    if kind == "gaussian":
        one += f'emaj = "{size!r} arcsec"\nratio = 0.5\npa = "{float(np.rad2deg(angle))!r} deg"\n'
    return one


def beam_of(observation: Observation) -> float:
    """Return the FWHM of the synthesised beam, arcsec: the geometric mean of its axes."""
    (part,) = observation.partitions
    uv = part.uvw[:, :2] * part.chan_freq[0] / speed_of_light
    rms = np.sqrt(np.sqrt(np.linalg.det(uv.T @ uv / len(uv))))
    return float(np.rad2deg(np.sqrt(8.0 * np.log(2.0)) / (2.0 * np.pi * rms)) * 3600.0)


def one_data_set(case: tuple[str, float, float, int], options: Options) -> Line:
    """Draw a data set, fit it with all three models by dynesty, and compare them; a line of the results."""
    kind, scale, ratio, repeat = case
    start = time.perf_counter()
    seed = np.random.SeedSequence([TRUTHS.index(kind), round(1000 * scale), round(ratio), repeat])
    rng = np.random.default_rng(seed)
    blank = observe(truth("point", 0.0, 1.0, rng), 1.0, 0)
    beam, weight = beam_of(blank), 2.0 * blank.partitions[0].n_row  # XX and YY are the flux each
    sky = truth(kind, scale * beam, beam, rng)
    observation = observe(sky, float(np.sqrt(weight) / ratio), int(rng.integers(2**31)))
    found = {}
    for name, text in models(beam).items():
        likelihood = Likelihood(observation, from_toml(text), backend="cpu")
        found[name] = sample(likelihood, "dynesty", seed=repeat, progress=False, **options)
    chosen = compare(found)
    evidence = [round(chosen[name].log_evidence, 3) for name in TRUTHS]
    errors = [round(chosen[name].log_evidence_err, 3) for name in TRUTHS]
    return {
        "truth": kind, "scale": scale, "ratio": ratio, "repeat": repeat, "chosen": chosen.best,
        "log_evidence": evidence, "error": errors, "seconds": round(time.perf_counter() - start, 2),
    }  # fmt: skip


def cases(repeats: int, quick: bool) -> Iterator[tuple[str, float, float, int]]:
    """Yield all cells of the table, again and again: the first repeat of each before the second of any."""
    scales, ratios = ((1.0,), (30.0,)) if quick else (SCALES, RATIOS)
    for repeat in range(repeats):
        for ratio in ratios:
            yield "point", 0.0, ratio, 2 * repeat
            if quick:
                return
            yield "point", 0.0, ratio, 2 * repeat + 1
            for scale, kind in itertools.product(scales, TRUTHS[1:]):
                yield kind, scale, ratio, repeat


def shown(line: Line) -> str:
    words = f"{line['truth']:10} {line['scale']:5g} beams  S/N {line['ratio']:5g}"
    return f"{words}  chosen: {line['chosen']:10} {line['seconds']:6.1f} s"


def main() -> int:
    args = make_pool_parser(__doc__).parse_args()
    one_thread_each()
    about = {"workers": args.workers, "time_limit": args.time_limit, "quick": args.quick, "options": FAST}
    if args.quick:
        args.workers, args.repeats = 1, 1
    else:
        one_data_set(("point", 0.0, 30.0, 0), QUICK)  # compiled once, for all workers
    function = partial(one_data_set, options=QUICK if args.quick else FAST)
    lines = each_in_turn(function, cases(args.repeats, args.quick), args.workers, args.time_limit)
    output = output_path(args, "trust", "model_choice.jsonl")
    write_lines(output, about | {"scales": SCALES, "ratios": RATIOS}, lines, shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
