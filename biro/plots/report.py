"""The report of a run: one self-contained HTML page with tables, pictures, data and versions."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.figure import Figure

from biro.files.atomic import write_atomic
from biro.formatting import html_table, html_text
from biro.plots.standard import standard_pictures as standard_pictures
from biro.posterior.comparison import Comparison
from biro.posterior.posterior import Posterior

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

DPI = 150
"""Dots per inch of PNG files."""
MOST_PIXELS = 2000
"""Width of a picture in the page, at most twice that at which a page shows it."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b2733; overflow-wrap: break-word }
h1, h2 { font-weight: 600; color: #1f4e79 } h1 { margin-bottom: 0 } .sub { color: #5a6a78; margin-top: 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; display: block;
  overflow-x: auto }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #d9e1e8; white-space: nowrap }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left }
th { background: #f1f5f8 }
figure { margin: 1.5rem 0 }
figure img { max-width: 100%; border: 1px solid #e3e9ee }
figcaption { color: #5a6a78 }
pre { background: #f6f8fa; padding: .8rem; overflow-x: auto; font-size: 12.5px }
@media (max-width: 40rem) { body { margin: 1rem auto; font-size: 14px } pre { font-size: 11px } }
"""


def write_report(
    path: str | PathLike[str],
    posterior: Posterior,
    likelihood: Likelihood,
    *,
    title: str = "Fit",
    comparison: Comparison | None = None,
    pictures: Mapping[str, Figure | bytes] | None = None,
    head: str = "",
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
    head : str
        More HTML for the page's head.
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
        html_table(_without_empty(summary.cells())),
        "".join(f"<p>{html.escape(line)}</p>" for line in summary.notes()),
    ]
    if comparison is not None:
        parts += ["<h2>Models compared</h2>", html_table(comparison.cells())]
    parts += ["<h2>Pictures</h2>", *(picture(caption, figure) for caption, figure in drawn.items())]
    parts += ["<h2>Data</h2>", html_text(str(likelihood.described.summary(likelihood.sky)))]
    parts += ["<h2>Model</h2>", html_text(provenance.model_toml)]
    parts += ["<h2>How it was made</h2>", html_text(_origin(posterior, likelihood))]
    write_atomic(target, page(title, "\n".join(parts), head).encode())
    return target


def page(title: str, body: str, head: str = "") -> str:
    """An HTML page with this body, and with more in its head."""
    about = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    about += f"<title>{html.escape(title)}</title><style>{_STYLE}</style>{head}"
    return f'<!doctype html>\n<html lang="en"><head>{about}</head>\n<body>\n{body}\n</body></html>\n'


def png(figure: Figure) -> bytes:
    """A figure as a PNG file. Drawing takes most of the time of a report: seconds for a large figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def pdf(figure: Figure) -> bytes:
    """A figure as a PDF file, whose text stays text."""
    buffer = io.BytesIO()
    with rc_context({"pdf.fonttype": 42}):  # which counts when a file is written, not when it is drawn
        figure.savefig(buffer, format="pdf", dpi=300)
    return buffer.getvalue()


def picture(caption: str, drawn: Figure | bytes) -> str:
    """HTML of a figure, or of its PNG file, with its caption; the picture itself lies in it."""
    kind, data = _small(drawn if isinstance(drawn, bytes) else png(drawn))
    text = html.escape(caption)
    image = f'<img alt="{text}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def _small(data: bytes) -> tuple[str, bytes]:
    """A PNG file as WebP, a fifth of its size with no loss to be seen; as it is without WebP."""
    from PIL import Image, features  # Matplotlib needs it, too

    if not features.check("webp"):
        return "png", data
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        small = image.convert("RGB")
    small.thumbnail((MOST_PIXELS, 2 * MOST_PIXELS))
    small.save(buffer, format="webp", quality=90)
    return "webp", buffer.getvalue()


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
    lines = ((name, _in_words(value)) for name, value in record.items())
    return "\n".join(f"{name.replace('_', ' ')}: {text}" for name, text in lines if text)


def _in_words(value: object) -> str:
    """A value of a record as a person writes it: no brackets of Python; nothing where it is None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name} {text}" for name, text in ((n, _in_words(v)) for n, v in value.items()) if text
        )
    if isinstance(value, list | tuple):
        texts = [_in_words(item) for item in value]
        if len(texts) > 1 and len(set(texts)) == 1:
            return f"{texts[0]} ({len(texts)} times)"
        return ", ".join(texts)
    return str(value)


def _without_empty(cells: Sequence[Sequence[str]]) -> list[list[str]]:
    """A table without the columns that have nothing but dashes."""
    head, *rows = cells
    kept = [i for i in range(len(head)) if i < 2 or any(row[i] not in ("", "-") for row in rows)]
    return [[row[i] for i in kept] for row in (head, *rows)]
