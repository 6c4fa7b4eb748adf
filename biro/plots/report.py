"""The report of a run: one self-contained HTML page with tables, pictures, data and versions."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from biro.files.atomic import write_atomic
from biro.formatting import html_table, html_text
from biro.images.fit_images import before_and_after, fit_images, image_rows
from biro.plots.data import residuals, uv
from biro.plots.posterior import MAX_CORNER, corner, sky, traces
from biro.posterior.comparison import Comparison
from biro.posterior.posterior import Posterior

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

MAX_FIELDS = 4
"""Number of fields whose images a report shows."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b2733 }
h1, h2 { font-weight: 600; color: #1f4e79 } h1 { margin-bottom: 0 } .sub { color: #5a6a78; margin-top: 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; display: block;
  overflow-x: auto }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #d9e1e8; white-space: nowrap }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left }
th { background: #f1f5f8 }
figure { margin: 1rem 0 }
figure img { max-width: 100%; border: 1px solid #e3e9ee }
figcaption { color: #5a6a78 }
pre { background: #f6f8fa; padding: .8rem; overflow-x: auto; font-size: 12.5px }
"""


def write_report(
    path: str | PathLike[str],
    posterior: Posterior,
    likelihood: Likelihood,
    *,
    title: str = "Fit",
    comparison: Comparison | None = None,
    pictures: Mapping[str, Figure | bytes] | None = None,
) -> Path:
    """Write one self-contained HTML page; returns its path.

    Parameters
    ----------
    path : path
        A file, or a directory (then `report.html` in it).
    posterior : Posterior
    likelihood : Likelihood
    title : str
    comparison : Comparison, optional
        Evidences of several models on these data.
    pictures : mapping caption -> Figure or bytes, optional
        Figures, or PNG files as `png` makes them; by default `standard_pictures`.
    """
    target = Path(path)
    if target.is_dir():
        target = target / "report.html"
    drawn = standard_pictures(posterior, likelihood) if pictures is None else pictures
    summary = posterior.summary()
    provenance = posterior.provenance
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="sub">{html.escape(provenance.sampler)}, seed {provenance.seed}</p>',
        "<h2>Parameters</h2>",
        "".join(f"<p><strong>{html.escape(line)}</strong></p>" for line in summary.warnings()),
        html_table(summary.cells()),
        "".join(f"<p>{html.escape(line)}</p>" for line in summary.notes()),
    ]
    if comparison is not None:
        parts += ["<h2>Models compared</h2>", html_table(comparison.cells())]
    parts += ["<h2>Pictures</h2>", *(picture(caption, figure) for caption, figure in drawn.items())]
    parts += ["<h2>Data</h2>", html_text(str(likelihood.observation.summary()))]
    parts += ["<h2>Model</h2>", html_text(provenance.model_toml)]
    parts += ["<h2>How it was made</h2>", html_text(_origin(posterior, likelihood))]
    write_atomic(target, page(title, "\n".join(parts)).encode())
    return target


def standard_pictures(posterior: Posterior, likelihood: Likelihood) -> dict[str, Figure]:
    """The pictures of a run by caption: data against model, residuals, images, sky, corner, traces."""
    best = posterior.best_fit
    names = posterior.names[:MAX_CORNER]
    images = fit_images(likelihood, best)
    shown = images[:MAX_FIELDS]
    more = f"; {len(shown)} of {len(images)} fields are shown" if len(images) > len(shown) else ""
    caption = f"Images of data, best fit and residual: {before_and_after(shown)}{more}"
    has_sources = bool(likelihood.model.source_names)
    return {
        "Amplitude and phase against uv distance, with the best fit": uv(likelihood, best),
        "Residuals of the best fit": residuals(likelihood, best),
        caption: image_rows(shown),
        **({"Sky": sky(likelihood, posterior)} if has_sources else {}),
        "Posterior: 68 % and 95 % contours": corner(posterior, names),
        "Traces": traces(posterior),
    }


def page(title: str, body: str) -> str:
    """An HTML page with this body."""
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def png(figure: Figure) -> bytes:
    """A figure as a PNG file. Drawing takes most of the time of a report: seconds for a large figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def picture(caption: str, drawn: Figure | bytes) -> str:
    """HTML of a figure, or of its PNG file, with its caption."""
    data = base64.b64encode(drawn if isinstance(drawn, bytes) else png(drawn)).decode()
    text = html.escape(caption)
    image = f'<img alt="{text}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def _origin(posterior: Posterior, likelihood: Likelihood) -> str:
    """How the posterior was made: options, diagnostics, hashes and versions, a line each."""
    provenance = posterior.provenance
    record = {
        **likelihood.description(),
        **{f"option {name}": value for name, value in provenance.options.items()},
        **{name: f"{value:.6g}" for name, value in posterior.diagnostics.items()},
        "data sha256": provenance.data_digest,
        "model sha256": provenance.model_digest,
        **provenance.versions,
    }
    return "\n".join(f"{name}: {value}" for name, value in record.items())
