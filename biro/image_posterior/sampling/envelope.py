"""The envelope of an image: that of the model, or of closures alone."""

from __future__ import annotations

from biro.display.formatting import angle_text
from biro.errors import InputError
from biro.image_posterior.problem import ImageProblem
from biro.image_posterior.sampling.sky_priors import Envelope
from biro.models.quantities import units
from biro.models.quantities.prior import LogNormal

_THIRD = 1.0 / 3.0
"""FWHM of the envelope over the width of the image, by default.

At the edges it then is 0.002, so that a field which is periodic does not join them.
"""


def envelope_of(problem: ImageProblem) -> Envelope | None:
    """The envelope of the model, or that of an image whose position is free: closures alone.

    Raises
    ------
    InputError
        It is smaller than a pixel, which would have all of the flux.
    """
    given, field = problem.prior.envelope, problem.operator.field
    if given is None:
        return Envelope(_THIRD * field.size) if problem.is_adrift else None
    size = units.factor(given.unit or "rad", units.ANGLE) / field.cell
    if isinstance(given, LogNormal):
        made = Envelope(float(given.median * size), float(given.sd))
    else:
        made = Envelope(float(given.value * size))
    if made.fwhm < 1.0:
        raise InputError(
            f"envelope: {angle_text(made.fwhm * field.cell)} is less than a pixel, {angle_text(field.cell)}; "
            "check its unit, or give a smaller cell"
        )
    return made


def envelope_line(envelope: Envelope, cell: float) -> str:
    """What was assumed of the size of the source."""
    error = f" times e^(+-{envelope.sd:.2g})" if envelope.sd else ""
    return f"envelope about the middle: Gaussian of FWHM {angle_text(envelope.fwhm * cell)}{error}"
