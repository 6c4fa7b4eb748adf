"""How fast a stream of integrations is flagged, spectrum by spectrum, and averaged.

    python benchmarks/flagging_stream.py --device cuda
    python benchmarks/flagging_stream.py

An integration of visibilities is added to `rime_kernels.flagging.averaging.OnlineAverage` again and again: on
a GPU it lies there already, and nothing comes back, so that no transfer counts. The default on a GPU is what
one ingest server of four has of MeerKAT's: 2080 baselines, 32768 channels and 4 products, of which it gets
136 million visibilities a second; fewer channels where its memory has no room for them. The table has
visibilities a second, as a whole and, on a GPU, of each stage, which is waited for:

- amplitudes: of visibilities, infinite where they do not count, and transposed.
- background: running medians over 13 channels; deviations from them, transposed back.
- noise: medians of absolute deviations, and thresholds.
- SumThreshold: windows of 1, 2, 4 and 8 channels.
- averaging: groups of 16 channels, flagged ones at 2^-64 of their weights.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from common.machine import machine, machine_slug
from common.options import make_parser, output_path, parse
from common.results import write
from common.timing import measure
from common.types import Line, OnDevice, Value

from rime_kernels import device
from rime_kernels.flagging.averaging import OnlineAverage
from rime_kernels.flagging.cuda import spectra
from rime_kernels.flagging.cuda.averaging import DeviceSums
from rime_kernels.flagging.options import SpectrumOptions

# The simulator replaces a global of this name while a kernel runs.
cuda: OnDevice = device.cuda
CHANNELS = 16
"""Channels that are averaged together."""
N_PRODUCT, N_DRAWN = 1 if device.simulated() else 4, 16
"""Products of a baseline; baselines whose visibilities are drawn, which the others repeat."""
BYTES = 40
"""Of device memory for each visibility: itself, weight and flag, and what stages leave."""
WANTED = 136e6
"""Visibilities a second of an ingest server."""
OPTIONS = SpectrumOptions(width=3, largest_window=1) if device.simulated() else SpectrumOptions()


def integration(n_row: int, n_chan: int) -> tuple[Value, Value, Value]:
    """Visibilities of noise about 1 with lines of interference, weights and flags."""
    rng = np.random.default_rng(1)
    shape = min(n_row, N_DRAWN), n_chan, N_PRODUCT
    vis = np.empty(shape, np.complex64)
    for part in (vis.real, vis.imag):
        part[...] = rng.standard_normal(shape, np.float32)
    vis[:, rng.choice(n_chan, max(1, n_chan // 50), replace=False)] += 100.0
    vis = np.tile(vis + np.complex64(1.0), (-(-n_row // len(vis)), 1, 1))[:n_row]
    return vis, np.ones(vis.shape, np.float32), np.zeros(vis.shape, np.uint8)


def stages(average: OnlineAverage, given: tuple[Value, Value, Value]) -> dict[str, Callable[[], object]]:
    """The stages of `DeviceSums.add`, each with what those before it have left."""
    sums, (vis, weight, _) = average._sums, given
    assert isinstance(sums, DeviceSums)
    work = sums._work
    by_channel = sums.amplitudes(vis, weight)
    deviation = spectra.deviations(by_channel, OPTIONS.width, work)
    bounds = spectra.thresholds(deviation, by_channel, OPTIONS, work)
    found = spectra.runs(deviation, bounds, work)
    return {
        "amplitudes": lambda: sums.amplitudes(vis, weight),
        "background": lambda: spectra.deviations(by_channel, OPTIONS.width, work),
        "noise": lambda: spectra.thresholds(deviation, by_channel, OPTIONS, work),
        "SumThreshold": lambda: spectra.runs(deviation, bounds, work),
        "averaging": lambda: sums.average(vis, weight, found),
    }


def waited_for(call: Callable[[], object]) -> Callable[[], None]:
    """The call, and the end of what it has begun on the device."""

    def both() -> None:
        call()
        cuda.synchronize()

    return both


def rates(n_row: int, n_chan: int, on_cuda: bool, repeat: int) -> dict[str, float]:
    """Visibilities a second, of the whole and of stages."""
    given = integration(n_row, n_chan)
    share = float((given[0].real[:N_DRAWN] > 50.0).mean())
    average = OnlineAverage(given[0].shape, CHANNELS, OPTIONS, "cuda" if on_cuda else "cpu")
    if on_cuda:
        given = tuple(map(device.upload, given))  # type: ignore[assignment]
    average.add(*given)
    found = float(average.flags()[:N_DRAWN].mean())
    if found < share:
        raise SystemExit(f"of {share:.2%} with interference {found:.2%} are flagged: nothing is measured")
    clear = np.zeros(given[0].shape, np.uint8)

    def whole() -> None:
        if on_cuda:
            given[2].copy_to_device(clear_there)  # flags that were found were written there
        average.add(*given)

    calls: dict[str, Callable[[], object]] = {"whole": whole}
    if on_cuda:
        clear_there = device.upload(clear)
        whole()
        given[2].copy_to_device(clear_there)
        calls |= stages(average, given)
        calls = {name: waited_for(call) for name, call in calls.items()}
    n = n_row * n_chan * N_PRODUCT
    return {name: n / measure(call, repeat).least for name, call in calls.items()}


def channels_that_fit(n_row: int, n_chan: int) -> int:
    """Halved until they fit into the memory of the device."""
    while n_chan > 1 and n_row * n_chan * N_PRODUCT * BYTES > device.memory_budget():
        n_chan //= 2
    return n_chan


def main() -> int:
    parser = make_parser(__doc__, device=True, repeat=5)
    parser.add_argument("--baselines", type=int, help="default: 2080 on a GPU, 64 on the CPU")
    parser.add_argument("--channels", type=int, help="default: 32768 on a GPU, 4096 on the CPU")
    args = parse(parser)
    on_cuda = args.device == "cuda"
    if on_cuda:
        device.resolve("cuda")
    usual = (1, 33) if args.quick else (2080, 32768) if on_cuda else (64, 4096)
    n_row, n_chan = args.baselines or usual[0], args.channels or usual[1]
    if on_cuda:
        n_chan = channels_that_fit(n_row, n_chan)
    about, found = machine(args.device), rates(n_row, n_chan, on_cuda, args.repeat)
    print(f"{n_row} baselines, {n_chan} channels, {N_PRODUCT} products: 1e6 visibilities a second")
    for name, rate in found.items():
        print(f"{name:16}{rate / 1e6:12.2f}{rate / WANTED:10.2f} of 136e6")
    line: Line = {"shape": (n_row, n_chan, N_PRODUCT), "vis_per_s": found}
    path = output_path(args, "flagging", f"stream_{machine_slug(about)}.json")
    write(path, {"quick": args.quick, "machine": about, **line})
    return 0


if __name__ == "__main__":
    sys.exit(main())
