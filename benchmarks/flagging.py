"""What flagging finds of each kind of interference, what it flags of noise alone, and how fast it is.

    python benchmarks/flagging.py
    python benchmarks/flagging.py --peer-python PYTHON     beside tricolour, katsdpsigproc and aoflagger
    python benchmarks/flagging.py --device cuda            speed alone, transfers included

Receiver operating curves: waterfalls of noise and the fringes of two sources, with interference of one kind
and strength; thresholds go from low to high, and the area under each curve (AUC) is stated, as the mean of
24 draws. Lines join its points, and its ends at (0, 0) and (1, 1). Shares are of samples, without what
extension adds. Kind by kind, the mean of all strengths is compared with the best peer, draw by draw, which
gives the error of the difference. False alarms are counted on noise alone, beside Rayleigh's law. Peers get
the same arrays, in a process of theirs; AOFlagger as it comes, and with its base threshold from low to high.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import measure
from common.types import Line
from numpy.typing import NDArray

from biro.simulation.interference import KINDS
from rime_kernels import device
from rime_kernels.flagging.options import SpectrumOptions, WaterfallOptions
from rime_kernels.flagging.spectra import flag_spectra
from rime_kernels.flagging.waterfalls import flag_waterfalls

Amplitude = NDArray[np.float32]
Mask = NDArray[np.bool_]
THRESHOLDS = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 8.0, 12.0)
STRENGTHS = (2.0, 5.0, 20.0)
"""Amplitudes of interference, in units of the noise of the real part."""
NARROW = WaterfallOptions(extend_time=1, extend_channels=1, whole_channel=1.0, whole_time=1.0)
RAYLEIGH_NOISE = 0.6826
"""Noise of a waterfall of Rayleigh's law, in units of that of the real part: 1.4826 times the median
deviation from the mean, 0.4604."""
# How each peer is called, given names of files; a peer that is not installed prints nothing.
PEER = """
import sys, time
import re, tempfile
import numpy as np
given = np.load(sys.argv[1])
a, thresholds, out = given["amplitude"], given["thresholds"], {}
clear = np.zeros(a.shape, bool)
try:
    from tricolour.flagging import SumThresholdFlagger
    def tricolour(n, a=a):
        f = SumThresholdFlagger(outlier_nsigma=n, time_extend=1, freq_extend=1, flag_all_time_frac=1.0,
                                flag_all_freq_frac=1.0)
        return f.get_flags(a, np.zeros(a.shape, bool))
    out["tricolour"] = np.array([tricolour(n) for n in thresholds])
    start = time.perf_counter(); tricolour(4.5); out["tricolour_s"] = time.perf_counter() - start
except ImportError:
    pass
try:
    from katsdpsigproc.rfi import host
    def katsdp(n):
        f = host.FlaggerHost(host.BackgroundMedianFilterHost(13, amplitudes=True), host.NoiseEstMADHost(),
                             host.ThresholdSumHost(n))
        return f(np.ascontiguousarray(a.reshape(-1, a.shape[-1]).T)).T.reshape(a.shape).astype(bool)
    start = time.perf_counter(); out["katsdpsigproc"] = katsdp(11.0)[None]
    out["katsdpsigproc_s"] = time.perf_counter() - start
except ImportError:
    pass
try:
    import aoflagger
    flagger = aoflagger.AOFlagger()
    generic = open(flagger.find_strategy_file(aoflagger.TelescopeId.Generic)).read()
    def run(x, base):
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
            file.write(re.sub("base_threshold = 1.0", f"base_threshold = {base}", generic, count=1))
            file.flush()
            strategy = flagger.load_strategy_file(file.name)
        data = flagger.make_image_set(x.shape[0], x.shape[1], 1)
        data.set_image_buffer(0, x.T)
        return strategy.run(data).get_buffer().T
    bases = (0.55, 0.6, 0.65, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0)
    start = time.perf_counter(); out["aoflagger"] = np.array([run(x, 1.0) for x in a])[None]
    out["aoflagger_s"] = time.perf_counter() - start
    out["aoflagger, any"] = np.array([[run(x, base) for x in a] for base in bases])
except (ImportError, AttributeError):
    pass
np.savez(sys.argv[2], **out)
"""


def fields(n: int, n_time: int, n_chan: int, rng: np.random.Generator) -> NDArray[np.complex128]:
    """Noise, sigma 1 in each part, and fringes of two sources of 3 and 1 that turn in time and frequency."""
    shape = (n, n_time, n_chan)
    vis = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    for flux in (3.0, 1.0):
        rate, delay = rng.uniform(-0.005, 0.005, (2, n, 1, 1))
        turns = rate * np.arange(n_time)[:, None] + delay * np.arange(n_chan) + rng.random((n, 1, 1))
        vis += flux * np.exp(2j * np.pi * turns)
    return vis


def with_interference(
    kind: str, strength: float, shape: tuple[int, int, int], seed: int
) -> tuple[Amplitude, Mask]:
    """Amplitudes and the truth."""
    rng = np.random.default_rng(seed)
    vis, truth = fields(*shape, rng), np.zeros(shape, bool)
    for i in range(shape[0]):
        profile = KINDS[kind](rng, *shape[1:])
        turns = rng.uniform() + rng.uniform(-0.2, 0.2) * np.arange(shape[1])
        vis[i] += strength * profile * np.exp(2j * np.pi * turns)[:, None]
        truth[i] = profile > 0
    return np.abs(vis).astype(np.float32), truth


def rates(found: Mask, truth: Mask) -> NDArray[np.float64]:
    """Shares of clear samples and of interference that are flagged, by draw: (n_draw, 2)."""
    shares = [(found & of).sum(axis=(1, 2)) / of.sum(axis=(1, 2)) for of in (~truth, truth)]
    return np.stack(shares, axis=1)


def area(points: NDArray[np.float64]) -> float:
    """Area under the curve through these points, (0, 0) and (1, 1)."""
    x, y = np.array(sorted([(0.0, 0.0), *map(tuple, points), (1.0, 1.0)])).T
    return float(np.trapezoid(np.maximum.accumulate(y), x))


def waterfall_flags(amplitude: Amplitude, n_sigma: float, eta: float = 0.0, largest: int = 8) -> Mask:
    options = replace(NARROW, n_sigma=n_sigma, rank_eta=eta, largest_window=largest)
    return flag_waterfalls(amplitude, options=options) > 1


def spectrum_flags(amplitude: Amplitude, n_sigma: float) -> Mask:
    lines = amplitude.reshape(-1, amplitude.shape[-1])
    return flag_spectra(lines, options=SpectrumOptions(n_sigma=n_sigma)).reshape(amplitude.shape)


METHODS = {
    "waterfalls": waterfall_flags,
    "with rank": lambda amplitude, n: waterfall_flags(amplitude, n, 0.2),
    "rank, 128": lambda amplitude, n: waterfall_flags(amplitude, n, 0.2, 128),
    "spectra": spectrum_flags,
}


def by_peers(python: str | None, amplitude: Amplitude) -> dict[str, NDArray[np.generic]]:
    """Flags (n_threshold or 1, ...) and seconds of other programs, those that this interpreter has."""
    if python is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "given.npz", Path(folder) / "out.npz"
        np.savez(given, amplitude=amplitude, thresholds=np.array(THRESHOLDS))
        subprocess.run([python, "-c", PEER, str(given), str(out)], check=True, capture_output=True)
        with np.load(out) as file:
            return dict(file)


def curve(
    kind: str, strength: float, shape: tuple[int, int, int], python: str | None
) -> tuple[Line, dict[str, NDArray[np.float64]]]:
    """One line of the table: AUC of each method, and the rates at each threshold; and AUC of each draw."""
    amplitude, truth = with_interference(kind, strength, shape, seed=1)
    found = {name: [rates(flags(amplitude, n), truth) for n in THRESHOLDS] for name, flags in METHODS.items()}
    for name, flags in by_peers(python, amplitude).items():
        if flags.ndim:
            found[name] = [rates(each, truth) for each in flags.astype(bool)]
    areas = {name: np.array([area(points) for points in np.stack(r, 1)]) for name, r in found.items()}
    line: Line = {"kind": kind, "strength": strength, "share": float(truth.mean())}
    line["auc"] = {name: float(each.mean()) for name, each in areas.items()}
    line["rates"] = {name: [each.mean(axis=0).tolist() for each in r] for name, r in found.items()}
    return line, areas


def compared(kind: str, areas: list[dict[str, NDArray[np.float64]]], peers: tuple[str, ...]) -> Line:
    """The mean AUC of a kind over its strengths, less that of the best peer, and the error of this."""
    by_draw = {name: np.mean([each[name] for each in areas], axis=0) for name in areas[0]}
    best = max(peers, key=lambda name: float(by_draw[name].mean()))
    difference = by_draw["waterfalls"] - by_draw[best]
    error = difference.std(ddof=1) / math.sqrt(len(difference)) if len(difference) > 1 else math.nan
    return {"kind": kind, "best": best, "difference": float(difference.mean()), "error": float(error)}


def comparisons(areas: dict[str, list[dict[str, NDArray[np.float64]]]]) -> dict[str, list[Line]]:
    """Kind by kind beside the best peer, with AOFlagger as it comes and with any threshold; printed."""
    found = {}
    for aoflagger in ("aoflagger", "aoflagger, any"):
        peers = ("tricolour", "katsdpsigproc", aoflagger)
        if not all(name in next(iter(areas.values()))[0] for name in peers):
            continue
        lines = [compared(kind, each, peers) for kind, each in areas.items()]
        n = sum(line["difference"] >= 0.0 for line in lines)
        print(f"\nwaterfalls less the best of {', '.join(peers)}: no worse in {n} of {len(lines)} kinds")
        for line in lines:
            print(f"{line['kind']:28}{line['difference']:+9.4f} +- {line['error']:.4f}  {line['best']}")
        found[aoflagger] = lines
    return found


def false_alarms(shape: tuple[int, int, int]) -> list[Line]:
    """Shares of pure noise that are flagged, by threshold: single samples beside Rayleigh's law, and runs.

    The law is exp(-(b + n s)^2/2), with the background b = sqrt(pi/2), the mean, and the noise s. (A
    background that leaves out what is 2 s above it is lower by 0.06, which flags 1.6 times as many at 4.5 s.)
    """
    rng = np.random.default_rng(2)
    amplitude = np.abs(rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.float32)
    lines = []
    for n in THRESHOLDS:
        single = replace(NARROW, n_sigma=n, largest_window=1)
        lines.append({
            "n_sigma": n,
            "law": math.exp(-((math.sqrt(math.pi / 2) + n * RAYLEIGH_NOISE) ** 2) / 2),
            "single": float((flag_waterfalls(amplitude, options=single) > 1).mean()),
            "runs": float(waterfall_flags(amplitude, n).mean()),
            "spectra": float(spectrum_flags(amplitude, n).mean()),
        })  # fmt: skip
    return lines


def speeds(
    shape: tuple[int, int, int], repeat: int, python: str | None, backend: Literal["cpu", "cuda"] = "cpu"
) -> Line:
    """Nanoseconds a sample, on all threads that there are, or a GPU; peers on their threads."""
    amplitude, _ = with_interference("lines", 20.0, shape, seed=3)
    lines = amplitude.reshape(-1, shape[-1])
    calls = {
        "waterfalls": lambda: flag_waterfalls(amplitude, backend=backend),
        "spectra": lambda: flag_spectra(lines, backend=backend),
    }
    found: Line = {name: 1e9 * measure(call, repeat).least / amplitude.size for name, call in calls.items()}
    for name, seconds in by_peers(python, amplitude).items():
        if not seconds.ndim:
            found[name.removesuffix("_s")] = 1e9 * float(seconds) / amplitude.size
    return found


def on_a_gpu(args: argparse.Namespace) -> int:
    """Measure the speed on a GPU."""
    device.resolve("cuda")
    about, shape = machine("cuda"), (1, 4, 6) if args.quick else (32, 256, 4096)
    ns = speeds(shape, args.repeat, None, "cuda")
    print("ns a sample: " + ", ".join(f"{name} {value:.2f}" for name, value in ns.items()))
    path = output_path(args, "flagging", f"{machine_slug(about)}.json")
    write(path, {"quick": args.quick, "machine": about, "shape": shape, "ns": ns})
    return 0


def text(line: Line) -> str:
    """One line of the table."""
    areas = "".join(f"{auc:15.3f}" for auc in line["auc"].values())
    return f"{line['kind']:28}{line['strength']:9.1f}{areas}"


def main() -> int:
    parser = make_parser(__doc__, device=True, repeat=3)
    parser.add_argument("--peer-python", help="an interpreter that has tricolour, katsdpsigproc or aoflagger")
    args = parse(parser)
    if args.device == "cuda":
        return on_a_gpu(args)
    about, python = machine("cpu"), args.peer_python
    shape = (1, 40, 96) if args.quick else (24, 100, 640)
    lines: list[Line] = []
    areas: dict[str, list[dict[str, NDArray[np.float64]]]] = {}
    for kind in list(KINDS)[:2] if args.quick else KINDS:
        for strength in STRENGTHS[1:2] if args.quick else STRENGTHS:
            line, by_draw = curve(kind, strength, shape, python)
            lines.append(line)
            areas.setdefault(kind, []).append(by_draw)
            if len(lines) == 1:
                print(f"{'AUC of':28}{'strength':>9}" + "".join(f"{name:>15}" for name in lines[0]["auc"]))
            print(text(lines[-1]), flush=True)
    found: Line = {"compared": comparisons(areas)}
    alarms = false_alarms(shape)
    print(f"\n{'sigma':>6}{'law':>12}{'single':>12}{'runs':>12}{'spectra':>12}   (shares of noise alone)")
    for alarm in alarms:
        print(f"{alarm['n_sigma']:6.1f}" + "".join(f"{alarm[k]:12.2e}" for k in list(alarm)[1:]))
    ns = speeds((min(4, shape[0]), *shape[1:]), args.repeat, python)
    print("\nns a sample: " + ", ".join(f"{name} {value:.1f}" for name, value in ns.items()))
    found |= {"quick": args.quick, "machine": about, "shape": shape, "curves": lines}
    write(output_path(args, "flagging", f"{machine_slug(about)}.json"), found | {"alarms": alarms, "ns": ns})
    return 0


if __name__ == "__main__":
    sys.exit(main())
