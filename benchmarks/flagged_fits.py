"""Fluxes fitted to data with interference: unflagged, flagged, with Student's t, with both, and iterated.

    python benchmarks/flagged_fits.py
    python benchmarks/flagged_fits.py --data FOLDER      the real data sets of that folder, too

Two points at fixed places are seen by KAT-7 in times and channels, with noise of 1 Jy and interference of
three kinds: a line that comes and goes, bursts, and single samples. Each replicate has noise and interference
of its own, and is fitted by its maximum, with errors from the curvature there; the noise factor is a
parameter, and so are the degrees of freedom of Student's t. "Iterated" is flagged by what the fit with
Student's t leaves of the data, as `biro flag --model RUN` does, and fitted with Gaussian noise.

For each treatment and flux the table has the bias, which is the mean of fitted less true in stated errors,
with the error of that mean; the rms of fitted less true and the mean of the stated errors, in mJy; and the
shares of truths within one and two stated
errors, which should be 68.3 % and 95.4 %. A strength of 0 says what flagging costs where there is nothing.

Of the real sets: what is flagged by each cause, and fluxes with their errors.
"""

from __future__ import annotations

import argparse
import math
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path
from common.results import write
from common.types import Line

import biro
from biro.flagging.find import FlaggedData, find_interference
from biro.flagging.strategy import read_strategy
from biro.models import GaussianSource, Noise, PointSource, SkyModel, Uniform
from biro.observation.partition import Partition
from biro.simulation.interference import Interference
from biro.simulation.prediction import predict
from biro.simulation.simulator import Channels, Track, simulate

TREATMENTS = ("unflagged", "flagged", "Student's t", "both")
ITERATED = "iterated"
KINDS = ("intermittent line", "bursts", "samples")
TRUE = {"a.I": 2.0, "b.I": 0.5}
"""Jy; the noise of a visibility is 1 Jy."""
STRENGTHS = (0.0, 5.0, 20.0, 100.0)
"""Amplitudes of interference, Jy; 0 is without."""
FLUX = Uniform(-5.0, 50.0, "Jy")


def sky(treatment: str) -> SkyModel:
    """The model that is fitted."""
    return SkyModel(
        [PointSource("a", east="0 arcmin", north="0 arcmin", I=FLUX),
         PointSource("b", east="12 arcmin", north="-7 arcmin", I=FLUX)],
        noise=noise_of(treatment),
    )  # fmt: skip


def has_tails(treatment: str) -> bool:
    return treatment in ("Student's t", "both")


def data_of(treatment: str, observation: biro.Observation, flagged: biro.Observation) -> biro.Observation:
    return flagged if is_flagged(treatment) else observation


def is_flagged(treatment: str) -> bool:
    return treatment in ("flagged", "both")


def noise_of(treatment: str) -> Noise:
    return Noise(distribution="student-t" if has_tails(treatment) else "gaussian")


def observed(strength: float, seed: int, n_time: int, n_chan: int) -> tuple[biro.Observation, float]:
    """A replicate, and the share of visibilities with interference."""
    observation = simulate(
        "KAT-7",
        sky("unflagged"),
        values=TRUE | {"noise": 1.0},
        phase_centre="04h00m00s -30d00m00s",
        times=Track("2026-03-01", 10.0 * n_time, 10.0),
        channels=Channels(1.3e9, 1e5, n_chan),
        noise=1.0,
        seed=seed,
        backend="cpu",
    )
    if not strength:
        return observation, 0.0
    observation, truth = Interference(KINDS, strength).add(observation, seed)
    return observation, float(np.mean(truth[0][observation.partitions[0].time_index]))


def without_interference(
    observation: biro.Observation, values: dict[str, float] | None = None
) -> tuple[biro.Observation, float]:
    """The observation without what a flagger finds, and the share of that.

    It looks at the data, or at what is left of them by fluxes of these values.
    """
    parts, n_found, n = [], 0, 0
    models: Iterable[object] = repeat(None)
    if values is not None:
        models = predict(observation, sky("unflagged"), values=values, backend="cpu")
    for part, model in zip(observation.partitions, models, strict=False):
        samples = samples_of(part)._replace(model=model)
        found = find_interference(samples, read_strategy("meerkat")).flag
        parts.append(replace(part, weight=np.where(found, 0, part.weight), vis=np.where(found, 0, part.vis)))
        n_found, n = n_found + int(found.sum()), n + found.size
    return replace(observation, partitions=tuple(parts)), n_found / n


def samples_of(part: Partition) -> FlaggedData:
    usable, band = part.weight > 0, (part.chan_freq, part.chan_width)
    return FlaggedData(part.vis, usable, part.antenna1, part.antenna2, part.time, part.uvw, *band)


def fitted(
    observation: biro.Observation, model: SkyModel, start: list[float] | None = None
) -> dict[str, tuple[float, float]]:
    """Fitted values and stated errors of all parameters; from one start where there is but one maximum."""
    likelihood = biro.Likelihood(observation, model, backend="cpu")
    found = biro.maximise(likelihood, seed=1, starts=8 if start is None else np.array([start]))
    return {
        name: (float(value), float(error))
        for name, value, error in zip(found.names, found.best_fit, found.error, strict=True)
    }


def replicate(strength: float, seed: int, size: tuple[int, int]) -> Line:
    """The fits of one replicate."""
    observation, share = observed(strength, seed, *size)
    flagged, found = without_interference(observation)
    line: Line = {"strength": strength, "seed": seed, "share": share, "found": found, "fits": {}}
    for treatment in TREATMENTS:
        start = [*TRUE.values(), 1.0, *([10.0] if has_tails(treatment) else [])]
        line["fits"][treatment] = fitted(data_of(treatment, observation, flagged), sky(treatment), start)
    iterate(line, observation)
    return line


def iterate(line: Line, observation: biro.Observation) -> None:
    """Flag what the fit with Student's t leaves of the data, and fit the rest."""
    values = {name: line["fits"]["Student's t"][name][0] for name in TRUE}
    rest, line["found_iterated"] = without_interference(observation, values)
    line["fits"][ITERATED] = fitted(rest, sky("unflagged"), [*TRUE.values(), 1.0])


def summary(lines: list[Line]) -> Iterator[Line]:
    """Bias, scatter and coverage of each flux by strength and treatment, and shares of visibilities."""
    for strength in dict.fromkeys(line["strength"] for line in lines):
        own = [line for line in lines if line["strength"] == strength]
        for treatment in (*TREATMENTS, ITERATED):
            found = "found_iterated" if treatment == ITERATED else "found" if is_flagged(treatment) else ""
            for name, true in TRUE.items():
                value, error = np.array([line["fits"][treatment][name] for line in own]).T
                pull = (value - true) / error
                yield {
                    "strength": strength,
                    "treatment": treatment,
                    "name": name,
                    "n_replicate": len(own),
                    "share": float(np.mean([line["share"] for line in own])),
                    "found": float(np.mean([line[found] for line in own])) if found else 0.0,
                    "bias": float(pull.mean()),
                    "bias_error": float(pull.std() / math.sqrt(len(own))),
                    "rms": float(np.sqrt(np.mean((value - true) ** 2))),
                    "error": float(error.mean()),
                    "within_1": float(np.mean(abs(pull) < 1)),
                    "within_2": float(np.mean(abs(pull) < 2)),
                }


def table(lines: list[Line]) -> str:
    """The summary as text."""
    rows = [f"{'':>6} {'':12} {'flux':5}{'bias':>18}{'rms':>8}{'stated':>8}{'68.3 %':>8}{'95.4 %':>8}"]
    for line in summary(lines):
        rows.append(
            f"{line['strength']:6g} {line['treatment']:12} {line['name']:5}"
            f"{line['bias']:9.2f} +- {line['bias_error']:5.2f}"
            f"{1e3 * line['rms']:8.1f}{1e3 * line['error']:8.1f}"
            f"{100 * line['within_1']:8.0f}{100 * line['within_2']:8.0f}"
        )
    return "\n".join(rows)


# Real data: files, strategies, and what is fitted.


def real_skies() -> dict[str, tuple[str, list[object]]]:
    """Strategy and sources of each real set; fluxes and sizes as in the tutorials on these data."""
    wide = {
        "emaj": Uniform(0.01, 1.0, "mas"),
        "ratio": Uniform(0.05, 1.0),
        "pa": Uniform(-90, 90, "deg"),
    }
    jet = {"emaj": "2.927 arcsec", "ratio": 0.306, "pa": "45.84 deg"}
    core = PointSource("core", east="0 arcsec", north="0 arcsec", I=FLUX)
    return {
        "vlba_j1033p6051_ku.uvfits": (
            "long-baseline",
            [GaussianSource("core", east="0 mas", north="0 mas", I=Uniform(0.0, 2.0, "Jy"), **wide)],
        ),
        "vla_3c273_x.uvfits": (
            "meerkat",
            [core, GaussianSource("jet", east="-13.929 arcsec", north="-15.461 arcsec", I=FLUX, **jet)],
        ),
        "wsrt_3c343.1_tNDPPP_tmp.MS.tgz": (
            "wsrt",
            [core, PointSource("3C343", east="-26.82 arcmin", north="11.06 arcmin", I=FLUX)],
        ),
    }


def real(folder: Path, scratch: Path) -> Iterator[Line]:
    """What is flagged in each real set, and fluxes before and after."""
    for name, (strategy, sources) in real_skies().items():
        path = unpacked(folder / name, scratch)
        sets = {flagger: biro.read(path, stokes="I", flagger=flagger) for flagger in (None, strategy)}
        line: Line = {"set": name, "strategy": strategy, "fits": {}}
        line["counts"] = dict(sets[strategy].counts)
        line["notes"] = [note for note in sets[strategy].notes if note.startswith("flagger")]
        for treatment in TREATMENTS:
            data = data_of(treatment, sets[None], sets[strategy])
            line["fits"][treatment] = fitted(data, SkyModel(sources, noise=noise_of(treatment)))
        yield line


def unpacked(path: Path, scratch: Path) -> Path:
    """The set itself, where it is packed."""
    if path.suffix != ".tgz":
        return path
    with tarfile.open(path) as archive:
        archive.extractall(scratch, filter="data")
        return scratch / archive.getnames()[0].split("/")[0]


def real_text(line: Line) -> str:
    counts = line["counts"]
    share = 100 * counts["interference"] / max(1, counts["usable"] + counts["interference"])
    rows = [
        f"\n{line['set']}, {line['strategy']}: {share:.2f} % of what was usable; {'; '.join(line['notes'])}"
    ]
    for treatment, found in line["fits"].items():
        fluxes = ", ".join(
            f"{name} {value:.4f} +- {error:.4f}"
            for name, (value, error) in found.items()
            if "noise" not in name
        )
        rows.append(f"  {treatment:12} {fluxes}")
    return "\n".join(rows)


def arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--replicates", type=int, help="of each strength (default 40, 1 if quick)")
    parser.add_argument("--data", type=Path, help="folder of real data sets")
    args = parser.parse_args()
    args.replicates = args.replicates or (1 if args.quick else 40)
    return args


def main() -> int:
    args, about = arguments(), machine("cpu")
    size = (12, 40) if args.quick else (40, 40)
    strengths = STRENGTHS[2:3] if args.quick else STRENGTHS
    lines = []
    for strength in strengths:
        for seed in range(1, args.replicates + 1):
            lines.append(replicate(strength, seed, size))
        own = lines[-args.replicates :]
        share, found = (100 * np.mean([line[key] for line in own]) for key in ("share", "found"))
        print(
            f"{strength:g} Jy: {share:.2f} % of visibilities have it, {found:.2f} % were flagged", flush=True
        )
    print(table(lines), flush=True)
    of_sets = []
    if args.data is not None:
        with tempfile.TemporaryDirectory() as scratch:
            for line in real(args.data, Path(scratch)):
                print(real_text(line), flush=True)
                of_sets.append(line)
    found = {
        "quick": args.quick,
        "machine": about,
        "size": size,
        "true": TRUE,
        "summary": list(summary(lines)),
    }
    path = output_path(args, "flagging", f"fits_{machine_slug(about)}.json")
    write(path, found | {"real": of_sets})
    return 0


if __name__ == "__main__":
    sys.exit(main())
