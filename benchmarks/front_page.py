"""Draw the picture of the front page of the documentation: a fit of J1033+6051, image, residual, posterior.

    python benchmarks/front_page.py [vlba_j1033p6051_ku.uvfits] [--output docs/front_page.jpg] [--quick]

The data are those of the tutorial on J1033+6051, in the folder that BIRO_TEST_DATA names. The quick form
draws a simulated point in place of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

from common.kat7 import observe
from common.machine import machine

import biro
from biro import plots
from biro.display.style import WIDTH, new_figure
from biro.models.files.toml import from_toml

PICTURE = Path(__file__).parents[1] / "docs" / "front_page.jpg"
_SOURCE = """
[[source]]
name = "{name}"
type = "gaussian"
east = {{ prior = "normal", mean = {east}, sd = 0.5, unit = "mas" }}
north = {{ prior = "normal", mean = {north}, sd = 0.5, unit = "mas" }}
I = {{ prior = "uniform", low = 0, high = 1, unit = "Jy" }}
"""
_CIRCLE = 'fwhm = { prior = "uniform", low = 0, high = 3, unit = "mas" }\n'
_ELLIPSE = """emaj = { prior = "uniform", low = 0.02, high = 0.5, unit = "mas" }
ratio = { prior = "uniform", low = 0, high = 1 }
pa = { prior = "uniform", low = -90, high = 90, unit = "deg" }
"""
MODEL = (
    _SOURCE.format(name="core", east=0, north=0)
    + _ELLIPSE
    + _SOURCE.format(name="near", east=0.3, north=-1.0)
    + _CIRCLE
    + _SOURCE.format(name="far", east=0.3, north=-3.6)
    + _CIRCLE
)
"""An elongated core and two faint components south of it, as in the tutorial."""
_POINT = """
[[source]]
name = "a"
type = "point"
east = "0 arcsec"
north = "0 arcsec"
I = {value}
"""


def draw(likelihood: biro.Likelihood, posterior: biro.Posterior, parameter: str, path: Path) -> None:
    """Draw the image of the data, that of the residual, and one marginal posterior, side by side."""
    from biro.imaging.fit_images import fit_images, fitted_offsets
    from biro.imaging.pictures import draw_panel, window_about

    best = posterior.best_fit
    ((data, _, residual),) = fit_images(likelihood, best, weighting="briggs", robust=0.0)
    (offsets,) = fitted_offsets(likelihood, best, 1)
    window = window_about([data.panel()], offsets)
    with new_figure((WIDTH, 2.2)) as figure:
        axes = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 0.8))
        marks = [(float(east), float(north)) for east, north in offsets]
        for ax, image in zip(axes, (data, residual), strict=False):
            draw_panel(dataclasses.replace(image.panel(window), sources=marks), ax=ax)
        plots.marginal(posterior, parameter, ax=axes[2])
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=140, pil_kwargs={"quality": 88} if path.suffix == ".jpg" else {})


def main() -> int:
    """Fit and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(os.environ.get("BIRO_TEST_DATA", ".")) / "vlba_j1033p6051_ku.uvfits"
    parser.add_argument("data", nargs="?", type=Path, default=default)
    parser.add_argument("--output", type=Path, default=PICTURE)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        observation = observe(_POINT.format(value='"1 Jy"'), 0.5, 0)
        model, parameter = _POINT.format(value='{ prior = "uniform", low = 0, high = 2, unit = "Jy" }'), "a.I"
        picture = args.output.with_suffix(".png")
    else:
        observation = biro.read(args.data, stokes="pseudoI")
        model, parameter, picture = MODEL, "far.I", args.output
    likelihood = biro.Likelihood(observation, from_toml(model))
    posterior = biro.sample(likelihood, "none", seed=1, progress=False)
    draw(likelihood, posterior, parameter, picture)
    print(f"written: {picture}, {picture.stat().st_size} bytes")
    if args.quick:
        line = {"picture": str(picture), "bytes": picture.stat().st_size}
        args.output.write_text(json.dumps({"machine": machine("cpu"), "lines": [line]}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
