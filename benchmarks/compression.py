"""Compare what a call costs with fewer visibilities: rectangles of means, means by baseline, and cells.

    python benchmarks/compression.py [--quick] [--data shared/data] [--output FILE]

A field of MeerKAT with 1, 10 and 100 sources whose fluxes are fitted. Each form is made as coarse as moves no
flux by more than 0.02 of its error (F^-1 times the difference of the slopes, at the truth, to those of all
data), in steps of 2 of the error of phase factors that it is made for, cells in steps of 3:

    rectangles  means over times and channels, the same for all baselines
    baselines   means over times, more for short baselines; channels as in rectangles
    free        means over times and channels, more for short baselines: each is a row of one channel
    cells       `average="cells"` of biro.Likelihood

The lines after these are of whole fits with and without cells, of real data and of a field of MeerKAT.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from common.options import make_parser, output_path, parse
from common.results import write_lines
from common.timing import in_turns
from common.types import Line
from numpy.typing import NDArray
from precision import Case, read_archive

import biro
from biro.likelihood.cells.choose import SHIFT
from biro.models import SkyModel
from biro.models.files.toml import from_toml
from biro.observation.averaging import average_channels, average_time
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.smearing import smearing_of
from biro.simulation.simulator import Channels, Track, simulate
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.rotation import rates

Array = NDArray[np.float64]
Index = NDArray[np.int64]
ROOT = Path(__file__).parents[1]
RADIUS = 60.0
"""Arcseconds within which the sources of the field lie."""
FLUX = 0.1
"""Jy, of each of them; a visibility has a noise of 1 Jy."""
N_BATCH = 8
"""Parameter vectors of a call that is timed."""
LIMITS = 0.2 / 2.0 ** np.arange(12)
"""Errors of phase factors that means are made for."""
PLACE = '{{ prior = "normal", mean = {:.1f}, sd = 2, unit = "arcsec" }}'
RADIANS = RADIUS * np.pi / 180 / 3600


def model(places: Array, prior: str) -> SkyModel:
    """Return points about these places (n, 2), arcsec, whose fluxes are fitted; the noise is as stated."""
    text = "[noise]\nfactor = 1\n"
    for i, (east, north) in enumerate(places):
        text += f'[[source]]\nname = "s{i}"\ntype = "point"\n'
        text += f"east = {prior.format(east)}\nnorth = {prior.format(north)}\n"
        text += 'I = { prior = "uniform", low = -10, high = 10, unit = "Jy" }\n'
    return from_toml(text)


def places(n: int) -> Array:
    """Return n places evenly spread within `RADIUS`, arcsec."""
    rng = np.random.default_rng(1)
    r, angle = RADIUS * np.sqrt(rng.random(n)), 2.0 * np.pi * rng.random(n)
    return np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1)


def field(n: int, *, quick: bool) -> Observation:
    """Return n sources of `FLUX` as MeerKAT sees them; in a quick run as KAT-7 does, for a short time."""
    telescope, duration, n_chan = ("kat-7", 64.0, 2) if quick else ("meerkat", 320.0, 16)
    return simulate(
        telescope,
        model(places(n), '"{:.3f} arcsec"'),
        phase_centre="04:13:26 -40:00:00",
        times=Track("2026-03-01", duration, 8.0),
        channels=Channels(1.3e9, 1e6, n_chan),
        noise=1.0,
        seed=1,
        values={f"s{i}.I": FLUX for i in range(n)},
    )


def lengths(part: Partition, limit: float) -> tuple[Index, Index]:
    """Return how many times and channels the mean of each row may be of, int64 (n_row,) each.

    Over phases that spread evenly over x, exp(i phase) differs by x / sqrt(12), rms, from that of the mean
    phase; times and channels have the limit each.
    """
    u, v, w = part.uvw.T
    du, dv, _ = rates(u, v, w, smearing_of(part).declination)
    turn = 2.0 * np.pi * RADIANS / SPEED_OF_LIGHT
    per_time = turn * part.chan_freq.max() * np.hypot(du, dv) * part.interval
    per_channel = turn * np.hypot(u, v) * part.chan_width.max()
    most = len(part.times), part.n_chan
    wide = limit * np.sqrt(0.5) * np.sqrt(12.0)
    times, channels = (
        np.clip(wide / np.maximum(step, 1e-12), 1, n).astype(np.int64)
        for step, n in zip((per_time, per_channel), most, strict=True)
    )
    return times, channels


def means_of_rows(part: Partition, size: Index) -> Partition:
    """Return means over the rows of each baseline in runs of `size` (n_row,) times, at their mean uvw."""
    pair = part.antenna1.astype(np.int64) * part.n_antenna + part.antenna2
    _, baseline = np.unique(pair, return_inverse=True)
    shortest = np.full(baseline.max() + 1, len(part.times))
    np.minimum.at(shortest, baseline, size)
    run = part.time_index // shortest[baseline]
    _, first, group = np.unique(baseline * (1 << 32) + run, return_index=True, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    number = np.diff(np.append(starts, part.n_row))
    weight = np.add.reduceat(part.weight[order], starts, axis=0)
    vis = np.add.reduceat((part.vis * part.weight)[order], starts, axis=0) / weight
    uvw = np.add.reduceat(part.uvw[order], starts, axis=0) / number[:, None]
    times, slot = np.unique(part.time[first], return_inverse=True)
    return replace(
        part,
        vis=vis,
        weight=weight,
        uvw=uvw,
        antenna1=part.antenna1[first],
        antenna2=part.antenna2[first],
        time=times[slot],
        time_index=slot.astype(np.int32),
        row_id=part.row_id[first],
    )


def rectangles(part: Partition, limit: float) -> Partition:
    """Return means over the times and channels that the longest baseline allows."""
    times, channels = lengths(part, limit)
    part = average_channels(part, int(channels.min()))
    return average_time(part, float(times.min()) * part.interval)[0] if times.min() > 1 else part


def baselines(part: Partition, limit: float) -> Partition:
    """Return means over the times that each baseline allows, and the channels that the longest does."""
    times, channels = lengths(part, limit)
    return means_of_rows(average_channels(part, int(channels.min())), times)


def free(part: Partition, limit: float) -> Partition:
    """Return means over the times and channels that each baseline allows, each a row of the first channel.

    Its uvw are scaled to its own frequency: phases are right, and spectra are flat here.
    """
    times, channels = lengths(part, limit)
    pieces = []
    for n in np.unique(channels):
        rows = channels == n
        of_rows = {
            name: getattr(part, name)[rows] for name in ("uvw", "antenna1", "antenna2", "time", "row_id")
        }
        of_rows |= {name: getattr(part, name)[rows] for name in ("time_index", "vis", "weight")}
        piece = means_of_rows(average_channels(replace(part, **of_rows), int(n)), times[rows])
        for k, freq in enumerate(piece.chan_freq):
            uvw = piece.uvw * freq / part.chan_freq[0]
            pieces.append(replace(piece, uvw=uvw, vis=piece.vis[:, [k]], weight=piece.weight[:, [k]]))
    names = ("uvw", "antenna1", "antenna2", "time", "row_id", "vis", "weight")
    joined = {name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in names}
    slot = np.unique(joined["time"], return_inverse=True)[1].astype(np.int32)
    one = slice(0, 1)
    return replace(
        part, **joined, time_index=slot, chan_freq=part.chan_freq[one], chan_width=part.chan_width[one]
    )


FORMS: dict[str, Callable[[Partition, float], Partition]] = {
    "rectangles": rectangles,
    "baselines": baselines,
    "free": free,
}


def compared(n: int, *, quick: bool, repeat: int) -> Iterator[Line]:
    """Compare the forms for n sources; a line of the results of each."""
    sky, data, truth = model(places(n), '"{:.3f} arcsec"'), field(n, quick=quick), np.full(n, FLUX)
    whole = biro.Likelihood(data, sky, smearing="off")
    fisher, slope = whole.fisher(truth), whole.log_likelihood_and_gradient(truth)[1]
    error = np.sqrt(np.diag(np.linalg.inv(fisher)))

    def shift(found: biro.Likelihood) -> float:
        moved = np.linalg.solve(fisher, found.log_likelihood_and_gradient(truth)[1] - slope)
        return float(np.abs(moved / error).max())

    found: dict[str, biro.Likelihood] = {"all": whole}
    for form, averaged in FORMS.items():
        for limit in LIMITS:
            part = averaged(data.partitions[0], limit)
            found[form] = biro.Likelihood(replace(data, partitions=(part,)), sky, smearing="off")
            if shift(found[form]) <= SHIFT:
                break
    found["cells"] = biro.Likelihood(data, sky, smearing="off", average="cells")
    theta = truth * np.ones((N_BATCH, 1))
    calls = [partial(each.log_likelihood, theta) for each in found.values()]
    gradients = [partial(each.log_likelihood_and_gradient, theta) for each in found.values()]
    times, of_gradients = in_turns(calls, repeat), in_turns(gradients, repeat)
    for i, (form, each) in enumerate(found.items()):
        part = each.observation.partitions[0]
        n_row, n_chan = part.n_row, part.n_chan
        if each.cells:
            n_row, n_chan = len(each.cells[0].rows), len(each.cells[0].channels.nodes)
        yield {
            "sources": n,
            "form": form,
            "phases": each.choices.forms[0],
            "rows": n_row,
            "channels": n_chan,
            "fewer": data.partitions[0].n_row * data.partitions[0].n_chan / (n_row * n_chan),
            "shift": shift(each),
            "ms": 1e3 * times[i],
            "gradient_ms": 1e3 * of_gradients[i],
            "faster": times[0] / times[i],
        }


def shown(line: Line) -> str:
    """Return a line in words."""
    head = f"{line['data']:16}" if "data" in line else f"{line['sources']:4} sources  {line['form']:10}"
    return (
        f"{head} {line['fewer']:7.3g} times fewer  {line['ms']:9.3g} ms a call, {line['faster']:6.3g} times "
        f"faster  gradient {line['gradient_ms']:9.3g} ms  shift {line['shift']:.2g} sigma"
    )


def fits(folder: Path) -> list[Case]:
    """Return the data sets with models that are fitted with and without cells."""
    sys.path.insert(0, str(ROOT / "tests" / "biro"))
    import real

    j1033 = real.j1033_core("ellipse") + real.j1033_blob("a", -1.0) + real.j1033_blob("b", -3.7)
    texts = [("VLA 3C273", "vla_3c273_x", real.CORE_3C273 + real.JET_3C273)]
    texts += [("VLBA J1033+6051", "vlba_j1033p6051_ku", j1033)]
    return [
        Case(name, "", text, partial(read_archive, folder, archive, ("RR", "LL")))
        for name, archive, text in texts
    ]


def fitted(name: str, data: Observation, sky: SkyModel, repeat: int) -> Line:
    """Fit a data set with and without cells; a line of the results."""
    start = time.perf_counter()
    cells = biro.Likelihood(data, sky, average="cells")
    seconds = time.perf_counter() - start
    whole = biro.Likelihood(data, sky)
    one, other = (biro.maximise(each, seed=1) for each in (whole, cells))
    theta = one.best_fit * np.ones((N_BATCH, 1))
    both = whole, cells
    times = in_turns([partial(each.log_likelihood, theta) for each in both], repeat)
    gradients = in_turns([partial(each.log_likelihood_and_gradient, theta) for each in both], repeat)
    n_all = sum(part.n_row * part.n_chan for part in data.partitions)
    n_kept = sum(each.n_kept for each in cells.cells) or n_all
    evidences = [each.log_evidence for each in (one, other)]
    return {
        "data": name,
        "said": cells.choices.average,
        "seconds_to_choose": seconds,
        "n_param": whole.n_param,
        "fewer": n_all / n_kept,
        "shift": float(np.abs((other.best_fit - one.best_fit) / one.error).max()),
        "errors": float(np.abs(other.error / one.error - 1.0).max()),
        "log_evidence": evidences,
        "ms": 1e3 * times[1],
        "gradient_ms": 1e3 * gradients[1],
        "faster": times[0] / times[1],
        "gradient_faster": gradients[0] / gradients[1],
    }


def main() -> int:
    parser = make_parser(__doc__, repeat=7)
    folder = os.environ.get("BIRO_TEST_DATA")
    parser.add_argument(
        "--data", type=Path, default=Path(folder) if folder else ROOT.parent / "shared" / "data"
    )
    args = parse(parser)

    def lines() -> Iterator[Line]:
        for n in (1,) if args.quick else (1, 10, 100):
            yield from compared(n, quick=args.quick, repeat=args.repeat)
        # Places are fitted, too, within some arcseconds.
        sky = model(places(3), PLACE)
        yield fitted("KAT-7" if args.quick else "MeerKAT", field(3, quick=args.quick), sky, args.repeat)
        for case in [] if args.quick else fits(args.data):
            yield fitted(case.data, case.observe(), from_toml(case.model), args.repeat)

    output = output_path(args, "compression", "cpu.jsonl")
    write_lines(output, {}, lines(), shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
