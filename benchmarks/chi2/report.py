"""Print what `benchmarks/rime.py` measures: one line for each case."""

from __future__ import annotations

from collections.abc import Callable

from common.types import Line

_SHORT = {"africanus": "africanus", "matvis_cuda": "matvis", "matvis": "matvis"}


def roofs_text(roofs: Line) -> str:
    """The limits of the machine as text, one on each line."""
    units: dict[str, tuple[str, Callable[[float], str]]] = {
        "fma_per_s": ("multiply-adds, Numba kernel", lambda x: f"{x / 1e12:.3g} T FMA/s"),
        "gemm_flop_per_s": ("matrix product", lambda x: f"{x / 1e12:.3g} TFLOP/s"),
        "copy_byte_per_s": ("copy", lambda x: f"{x / 1e9:.4g} GB/s"),
        "host_to_device_byte_per_s": ("pinned host to device", lambda x: f"{x / 1e9:.4g} GB/s"),
        "launch_s": ("launch of an empty kernel", lambda x: f"{x * 1e6:.3g} us"),
    }
    lines = []
    for key, value in roofs.items():
        label, show = units[key]
        parts = value.items() if isinstance(value, dict) else [("", value)]
        text = ", ".join(f"{name} {show(x)}".strip() for name, x in parts) or "not measured"
        lines.append(f"  {label:30} {text}")
    return "\n".join(lines)


def head(peers: tuple[str, ...]) -> str:
    """Names of the columns of `line_text`."""
    ratios = "".join(f"{'x ' + _SHORT.get(name, name):>12}" for name in ("plain", *peers))
    numbers = f"{'ms':>10}{'min':>10}{'n':>5}{'s-vis/s':>10}{'FMA %':>7}"
    return f"{'case':40}{'times':>6} {'form':9}{'prec':7}{numbers}{ratios}"


def line_text(line: Line, peers: tuple[str, ...]) -> str:
    """The line of a case; a ratio is the rate of biro divided by that of the other program."""
    start = f"{line['name']:40}{line['n_time']:6} {line['form']:9}{line['precision']:7}"
    if "skipped" in line:
        return f"{start} left out: {line['skipped']}"
    text = f"{start}{_ms(line['median_ms'])}{_ms(line.get('min_ms'))}{line['n']:5}"
    text += f"{line['rate']:10.3g}" if "rate" in line else f"{'':10}"
    text += f"{100 * line['fma_share']:7.1f}" if "fma_share" in line else f"{'':7}"
    ratios = line.get("ratios", {})
    return text + "".join(
        f"{ratios[name]:12.3g}" if name in ratios else f"{'':12}" for name in ("plain", *peers)
    )


def _ms(value: float | None) -> str:
    return f"{'':10}" if value is None else f"{value:10.3f}" if value < 1e3 else f"{value:10.0f}"


def extra_text(line: Line) -> str | None:
    """What was measured besides the rate: whole likelihoods, streaming, or sampling; None if nothing."""
    if "share_outside" in line:
        words = f"{line['n_walker']} walkers, {line['n_param']} parameters, {line['n']} steps"
        return f"{line['name']}: {words}: {100 * line['share_outside']:.1f} % of the time outside Rime.chi2"
    if "share_of_slower" in line:
        words = f"memory limit {line['memory_limit']}, all data on the GPU {line['resident_ms']:.3g} ms"
        words += f", transfer {line['transfer_ms']:.3g} ms, streamed {line['median_ms']:.3g} ms"
        share = f"{100 * line['share_of_slower']:.0f} % of the speed of the slower"
        return f"{line['name']}, {line['precision']}: {words}: {share}"
    if not line.get("whole"):
        return None
    words = f"{line['likelihoods_per_s']:.3g} likelihoods/s, {1e3 * line['median_ms']:.3g} us a call"
    if "whole_us" in line:
        words += f"; log_likelihood {line['whole_likelihoods_per_s']:.3g}/s, {line['whole_us']:.3g} us a call"
    elif "whole_skipped" in line:
        words += f"; log_likelihood left out: {line['whole_skipped']}"
    return f"{line['name']}, {line['precision']}: {words}"
