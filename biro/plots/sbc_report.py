"""The report of simulation-based calibration: one HTML page, and its pictures as files."""

from __future__ import annotations

import html
from pathlib import Path

from matplotlib.figure import Figure

from biro.display.formatting import html_table, html_text
from biro.files.atomic import write_atomic
from biro.plots import sbc
from biro.plots.report import Picture, picture, png, small_page
from biro.sbc.result import SBCResult
from biro.sbc.statistics import BANDS

NAMES = ("ranks", "coverage", "chi2")
"""Names of the files of the pictures, without their ending."""


def pictures(result: SBCResult) -> dict[str, Figure]:
    """The pictures of simulation-based calibration by caption."""
    bands = " and ".join(f"{100 * band:.0f} %" for band in BANDS)
    n_shown = min(len(result.ranks.names), sbc.MAX_PANELS)
    left_out = len(result.ranks.names) - n_shown
    more = f" The {n_shown} with the smallest p-values; {left_out} are left out." if left_out else ""
    by_caption = {
        f"Ranks of the truth, flat within the range by chance ({bands}) if the posteriors are right. High "
        "at both ends: intervals too narrow. High in the middle: too wide. High at one end: fits are "
        "biased." + more: sbc.rank_histograms(result),
        "Coverage of central intervals minus the nominal value. Shaded: range by chance at each "
        f"probability ({bands}). Dashed: range of a whole curve." + more: sbc.coverage_curves(result),
    }
    if result.reduced_chi2 is not None:
        caption = "Reduced chi-squared of one draw of each replicate, and what is expected"
        by_caption[caption] = sbc.reduced_chi2(result)
    return by_caption


def write_report(folder: Path, result: SBCResult, *, title: str, model_toml: str) -> Path:
    """Write `report.html` and the pictures into a folder; returns the page's path."""
    drawn = {caption: png(figure) for caption, figure in pictures(result).items()}
    for name, data in zip(NAMES, drawn.values(), strict=False):
        write_atomic(folder / f"{name}.png", data)
    about = result.about
    origin = [f"{key}: {value}" for key, value in about.items() if key not in ("versions", "sampler_options")]
    origin += [f"option {key}: {value}" for key, value in about["sampler_options"].items()]
    origin += [f"{key}: {value}" for key, value in about["versions"].items()]
    parts: list[str | Picture] = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="sub">Simulation-based calibration, {html.escape(about["sampler"])}, seed '
        f"{about['seed']}</p>",
        "<h2>Verdict</h2>",
        _verdict(result),
        "<h2>Pictures</h2>",
        *(picture(caption, data) for caption, data in drawn.items()),
        "<h2>Table</h2>",
        html_table(result.cells()),
        "<h2>Model</h2>",
        html_text(model_toml),
        "<h2>How it was made</h2>",
        html_text("\n".join(origin)),
    ]
    target = folder / "report.html"
    write_atomic(target, small_page(title, parts).encode())
    return target


def _verdict(result: SBCResult) -> str:
    """Whether the posteriors can be trusted, the last of the notes, and the figures that show it."""
    *figures, verdict = (html.escape(line) for line in result.notes())
    level = "good" if result.passed else "bad"
    lines = "".join(f"<p>{line}</p>" for line in figures)
    return f'<section class="verdict {level}"><p><strong>{verdict}</strong></p>{lines}</section>'
