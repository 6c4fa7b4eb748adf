"""The report of a run: one self-contained HTML page, the verdict first, then images, tables, and the rest."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from matplotlib import rc_context
from matplotlib.figure import Figure

from biro.display.arguments import takes_likelihood
from biro.display.formatting import html_table, html_text
from biro.files.atomic import write_atomic
from biro.inference.posterior.comparison import Comparison
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.verdict import Verdict, verdict_of
from biro.plots.standard import standard_pictures as standard_pictures

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

DPI = 150
"""Dots per inch of PNG files."""
SIZES = ((2000, 90), (1600, 80), (1200, 70), (900, 55), (600, 40))
"""Width of a picture in pixels, and quality of its WebP: the first at which the page is small enough.
2000 pixels are twice what a page shows."""
MOST_BYTES = 1_900_000
"""Largest size of a page, with a margin below 2 MB."""
MOST_LINES = 400
"""Rows of a table, and lines of a model, that a page shows."""
FIRST = "Images"
"""Beginning of the caption of the picture that stands right below the verdict."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b2733; overflow-wrap: break-word }
h1, h2 { font-weight: 600; color: #1f4e79 } h1 { margin-bottom: 0 } .sub { color: #5a6a78; margin-top: 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; display: block;
  overflow-x: auto }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #d9e1e8; white-space: nowrap }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left }
th { background: #f1f5f8 }
td:first-child { position: sticky; left: 0; background: #fff }
.verdict { border-left: .4rem solid #3a7d44; background: #f4f8f4; padding: .2rem 1rem }
.verdict.doubt { border-color: #c98500; background: #fdf8ee }
.verdict.bad { border-color: #b3261e; background: #fcf1f0 }
.verdict dt { font-weight: 600 } .verdict dd { margin: 0 0 .5rem }
figure { margin: 1.5rem 0; overflow-x: auto }
figure img { max-width: 100%; border: 1px solid #e3e9ee; box-sizing: border-box }
figcaption { color: #5a6a78 }
pre { background: #f6f8fa; padding: .8rem; overflow-x: auto; font-size: 12.5px }
@media (max-width: 40rem) { body { margin: 1rem auto; font-size: 14px } pre { font-size: 11px }
  table { font-size: 12px } th, td { padding: .2rem .35rem }
  td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 6rem }
  figure.wide img { max-width: none; width: 38rem } }
"""


@takes_likelihood
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
    """Write one self-contained HTML page of less than 2 MB; returns its path.

    It begins with the verdict and the warnings, and goes on with images of data, model and residual, the
    table of parameters, the other pictures, the data, the model, and versions.

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
    images, others = _split(drawn)
    parts: list[str | Picture] = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="sub">{html.escape(provenance.sampler)}, seed {provenance.seed}</p>',
        _verdict(verdict_of(summary), summary.warnings()),
        *images,
        "<h2>Parameters</h2>",
        _table(_without_empty(summary.cells())),
        "".join(f"<p>{html.escape(line)}</p>" for line in summary.notes()),
    ]
    if comparison is not None:
        parts += ["<h2>Models compared</h2>", html_table(comparison.cells())]
    if others:
        parts += ["<h2>Pictures</h2>", *others]
    parts += ["<h2>Data</h2>", html_text(str(likelihood.described.summary(likelihood.sky)))]
    parts += ["<h2>Model</h2>", html_text(_beginning_of(provenance.model_toml))]
    parts += ["<h2>How it was made</h2>", html_text(_origin(posterior, likelihood))]
    write_atomic(target, small_page(title, parts, head).encode())
    return target


def small_page(title: str, parts: Sequence[str | Picture], head: str = "") -> str:
    """A page of these parts, with pictures as good as 2 MB allow."""
    for size in SIZES:
        body = "\n".join(part if isinstance(part, str) else part.html(*size) for part in parts)
        text = page(title, body, head)
        if len(text) <= MOST_BYTES:
            break
    return text


def _split(drawn: Mapping[str, Figure | bytes]) -> tuple[list[Picture], list[Picture]]:
    """The pictures that stand below the verdict, and the others."""
    made = {caption: picture(caption, figure) for caption, figure in drawn.items()}
    first = [each for caption, each in made.items() if caption.startswith(FIRST)]
    return first, [each for caption, each in made.items() if not caption.startswith(FIRST)]


def _verdict(verdict: Verdict, warnings: Sequence[str]) -> str:
    """The three answers that a reader wants first, and the warnings that they follow from."""
    heads = ("Does the model fit?", "What can be trusted?", "What to do next")
    fit = f"{verdict.fit} ({verdict.numbers})" if verdict.numbers else verdict.fit
    answers = (fit, verdict.trust, verdict.action)
    items = "".join(
        f"<dt>{head}</dt><dd>{html.escape(text)}</dd>" for head, text in zip(heads, answers, strict=True)
    )
    lines = "".join(_warning(line) for line in warnings)
    return f'<h2>Verdict</h2><section class="verdict {verdict.level}"><dl>{items}</dl>{lines}</section>'


def _warning(text: str) -> str:
    """The first line of a warning in bold, and each cause below it on a line of its own."""
    head, *causes = (html.escape(line.strip()) for line in text.split("\n"))
    return f"<p><strong>{head}</strong>{''.join(f'<br>{cause}' for cause in causes)}</p>"


def _table(cells: Sequence[Sequence[str]]) -> str:
    """A table, of which a page shows the first few hundred rows."""
    more = len(cells) - 1 - MOST_LINES
    note = f"<p>{more} more rows are in the posterior file.</p>" if more > 0 else ""
    return html_table(cells[: MOST_LINES + 1]) + note


def _beginning_of(text: str) -> str:
    """The first few hundred lines of a text."""
    lines = text.splitlines()
    more = len(lines) - MOST_LINES
    return text if more <= 0 else "\n".join([*lines[:MOST_LINES], f"... {more} more lines are in model.toml"])


def page(title: str, body: str, head: str = "") -> str:
    """An HTML page with this body, and with more in its head."""
    about = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    about += f"<title>{html.escape(title)}</title><style>{_STYLE}</style>{head}"
    return f'<!doctype html>\n<html lang="en"><head>{about}</head>\n<body>\n{body}\n</body></html>\n'


def png(figure: Figure) -> bytes:
    """A figure as a PNG file. Drawing takes most of the time of a report: seconds for a large figure.

    Matplotlib draws a figure with a layout engine twice, the first time for the layout alone. Here the engine
    makes the layout without a drawing.
    """
    buffer = io.BytesIO()
    with _laid_out(figure):
        figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


@contextmanager
def _laid_out(figure: Figure) -> Iterator[None]:
    """The figure with the layout that it has at `DPI`, and without its layout engine; not of a window."""
    engine, dpi = figure.get_layout_engine(), figure.get_dpi()
    if engine is None or figure.canvas.manager is not None:
        yield
        return
    with rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
        figure.set_dpi(DPI)
        engine.execute(figure)
        figure.set_layout_engine(None)  # the settings would choose another one
        try:
            yield
        finally:
            figure.set_dpi(dpi)
            figure.set_layout_engine(engine)


def pdf(figure: Figure) -> bytes:
    """A figure as a PDF file, whose text stays text."""
    buffer = io.BytesIO()
    with rc_context({"pdf.fonttype": 42}):  # which counts when a file is written, not when it is drawn
        figure.savefig(buffer, format="pdf", dpi=300)
    return buffer.getvalue()


class Picture(NamedTuple):
    """A picture of a page: its caption and its PNG file."""

    caption: str
    data: bytes

    def html(self, most_pixels: int, quality: int) -> str:
        """HTML of the picture with its caption; the picture itself lies in it."""
        kind, data, is_wide = _small(self.data, most_pixels, quality)
        text = html.escape(self.caption)
        image = f'<img alt="{text}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'
        return f"<figure{' class=wide' * is_wide}>{image}<figcaption>{text}</figcaption></figure>"


def picture(caption: str, drawn: Figure | bytes) -> Picture:
    """A figure, or its PNG file, as a picture of a page."""
    return Picture(caption, drawn if isinstance(drawn, bytes) else png(drawn))


def _small(data: bytes, most_pixels: int, quality: int) -> tuple[str, bytes, bool]:
    """A PNG file as WebP, a fifth of its size with no loss to be seen; as JPEG where there is no WebP.

    Returns
    -------
    kind : str
    data : bytes
    is_wide : bool
        Whether it is twice as wide as high, so that a narrow page should let it scroll.
    """
    from PIL import Image, features  # Matplotlib needs it, too

    kind = "webp" if features.check("webp") else "jpeg"
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        small = image.convert("RGB")
    small.thumbnail((most_pixels, 2 * most_pixels))
    small.save(buffer, format=kind, quality=quality)
    return kind, buffer.getvalue(), small.width > 2 * small.height


PLAIN = {
    "noise": "noise",
    "gaussian_frame": "plane of Gaussians",
    "n_vis": "visibilities",
    "overlap": "importance-sampling efficiency",
    "pareto_k": "Pareto k",
    "n_mode": "modes",
    "n_step": "steps",
    "n_burn": "steps left out at the start (burn-in)",
    "thin": "steps from one kept sample to the next",
    "acceptance": "acceptance fraction",
    "steps_per_tau": "steps over the autocorrelation time",
    "n_iteration": "iterations",
    "n_call": "evaluations of the likelihood",
    "n_gradient": "evaluations of the gradient",
    "efficiency_percent": "sampling efficiency (%)",
    "information_nat": "information (nat)",
    "n_divergent": "divergent transitions",
    "bfmi": "BFMI",
    "r_hat": "R-hat",
    "n_effective_tail": "effective samples in the tails",
    "log_evidence_laplace": "ln evidence of the Laplace approximation",
    "missed_mass": "estimated part of the posterior in modes that were not found",
    "n_start": "starts of the search for the maximum",
}
"""What the report calls an entry of a record, where its name does not read as words."""
INTERNAL = {
    *("form", "reason", "precision_reason", "smearing_reason", "memory_limit", "left", "covered"),
    *("n_agree", "n_end", "n_search", "n_exchangeable", "n_outside", "step_size", "depth", "unexplored"),
}
"""Entries that only the developers of biro can use; the log and `run.json` have them."""


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
    lines = ((name, _in_words(value)) for name, value in record.items() if name not in INTERNAL)
    return "\n".join(f"{PLAIN.get(name, name.replace('_', ' '))}: {text}" for name, text in lines if text)


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
