"""Arithmetic of a visibility and a pixel, on every target (physics: sections 2 and 8).

With l = l0 + dl, m = m0 + dm, a phase in turns is

    u l + v m + w (n - 1) = [u l0 + v m0 + w (n0 - 1)] + u' dl + v' dm + w c(dl, dm)
    u' = u - w l0/n0,    v' = v - w m0/n0,    c = n - n0 + (l0 dl + m0 dm)/n0

so that c is flat in the middle of the image. A visibility lies at cells U = -u' F nu/c, V = v' F nu/c of the
grid, F the padded field in direction cosines; pixel (jx, jy) of a subgrid of S x S cells about cell (X, Y)
lies at x = (jx - S/2)/S, y = (jy - S/2)/S padded fields, dl = -x F, dm = y F. The phase that is left to it is

    (U - X) x + (V - Y) y + (w - w_item) c(-x F, y F)    turns.
"""

from __future__ import annotations

import math

from rime_kernels.compile.jit import scalar


@scalar
def curvature(dl: float, dm: float, l0: float, m0: float, n0: float, corner2: float) -> float:
    """c = n - n0 + (l0 dl + m0 dm)/n0, without cancelling; float64.

    Where l^2 + m^2 > corner2, beyond every pixel of the image, n goes on as a parabola in l^2 + m^2, with
    its value, slope and curvature: nothing shines there, but what is sampled there must be smooth and finite.
    """
    along, across2 = l0 * dl + m0 * dm, dl * dl + dm * dm
    beyond = l0 * l0 + m0 * m0 + 2.0 * along + across2 - corner2
    if beyond > 0.0:
        edge = math.sqrt(1.0 - corner2)
        n = edge - beyond / (2.0 * edge) - beyond * beyond / (8.0 * edge * edge * edge)
        return (n - n0) + along / n0
    n = math.sqrt(1.0 - corner2 - beyond)
    less = -(2.0 * along + across2) / (n + n0)  # n - n0
    return (along * less / n0 - across2) / (n + n0)


@scalar
def relative_turns(
    u: float, v: float, w: float, scale: float, cell_x: float, cell_y: float, w_item: float, x: float,
    y: float, c: float,
) -> float:  # fmt: skip
    """Turns of a visibility at a pixel of its subgrid, relative to the subgrid's own; float64.

    u, v in cells times c/nu, w in m, scale = nu/c, (cell_x, cell_y) the subgrid's middle, w_item in
    wavelengths.
    """
    return (u * scale - cell_x) * x + (v * scale - cell_y) * y + (w * scale - w_item) * c
