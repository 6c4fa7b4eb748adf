"""Combinations of parameters that data with free gains do not determine, whatever their noise.

A combination v does not change the visibilities where F v = 0, F the Fisher information. With gains there are
many such: the phases of all antennas of a segment together; all amplitudes against the flux densities; the
phases of the two feeds against polarisation angles (physics: section 6). Priors alone determine them.

Correlation times of gains are left out: steps between segments can make up for any change of them, but how
large the steps must be tells them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.inference.target.degeneracy_text import PLACES, POSITION, degeneracy
from biro.likelihood.density import Density
from biro.models import BoundModel
from biro.models.components.antenna_terms.gain import is_of_prior

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
MOST_WORK = 3e10
"""Squared parameters times visibilities up to which the information is worked out: some 20 s."""
_NULL = 1e-11
"""Eigenvalues of the information in units of its diagonal that are roundings.

Roundings of 189 parameters are 1e-15, and the weakest combination that they determine has 3e-7.
"""
_SMALL = 0.03
"""Parts of a combination that are smaller than this times its largest are not named."""
_TRIES = 100
_NOT_OF_SKY = ("gain.", "leakage.", "feeds.", "pointing.", "noise.", "beam.", "ionosphere.")


def undetermined(likelihood: Density, beside: Sequence[str] | None = None, *, closures: bool = False) -> str:
    """One line that names the combinations of parameters that the data do not determine, or "".

    They are looked for at one draw of the prior, where nothing is 0 by symmetry.

    Parameters
    ----------
    likelihood : Density
    beside : sequence of str, optional
        Of combinations only those are named that have one of these parameters.
    closures : bool
        Whether the data are closures, which leave open what gains would make up for.
    """
    model = likelihood.model
    looked = np.array([not is_of_prior(name) for name in likelihood.parameter_names])
    names = [name for name in likelihood.parameter_names if not is_of_prior(name)]
    if len(names) ** 2 * float(likelihood.n_vis.sum()) > MOST_WORK:
        log.info(
            "biro did not search for degenerate combinations of %d parameters (too much work)", len(names)
        )
        return ""
    theta = _draw(model)
    if theta is None:
        return ""
    information = likelihood.fisher(theta)[np.ix_(looked, looked)]
    scale = _scales(model)[looked]
    found = null_directions(information, scale)
    place = nearly_open_position(information, scale, names)
    if beside is not None:
        found = _with_any(found, np.isin(names, beside))
    named = _named(found, names, closures=closures) if len(found) else []
    if place and not any(text.startswith(POSITION) for text in named):
        named.append(f"{POSITION}: {first_few(place)}")
    if not named:
        return ""
    return (
        f"DEGENERATE: the data do not constrain {first_few(named, '; ')}; only the priors do. Set one of "
        "the parameters to a number (a flux density, an amplitude or a phase of one antenna), tie it, or "
        "give it a narrow prior"
    )


def _named(directions: Array, names: Sequence[str], *, closures: bool) -> list[str]:
    """What is left open, each kind once with its parameters: "the overall flux scale (...): a.I, b.I"."""
    kinds: dict[str, list[int]] = {}
    for k, direction in enumerate(directions):
        kinds.setdefault(degeneracy(_members(direction, names), closures=closures), []).append(k)
    texts = []
    for kind, which in kinds.items():
        words = in_words(directions[which], names)
        texts += [f"{kind}: {first_few(words, ' and ')}"] if kind else words
    return texts


def _members(direction: Array, names: Sequence[str]) -> list[str]:
    """The parameters of a combination."""
    share = np.abs(direction)
    return [names[int(i)] for i in np.flatnonzero(share > _SMALL * share.max())]


def null_directions(information: Array, scale: Array) -> Array:
    """Directions v with F v = 0, float64 (n_null, n_param), each with zeros where it can have them.

    Parameters
    ----------
    information : float64 (n_param, n_param)
        F.
    scale : float64 (n_param,)
        In whose units the answer is: the widths of the priors.
    """
    sigma = np.sqrt(np.maximum(np.diag(information), 0.0))
    by = np.where(sigma > 0.0, 1.0 / np.where(sigma > 0.0, sigma, 1.0), scale)
    values, vectors = np.linalg.eigh(information * np.outer(by, by))
    found = vectors[:, values < _NULL].T * by / scale
    if not len(found):
        return found
    from scipy.linalg import qr

    # A basis in which each direction alone has one parameter, which shows directions that part.
    first = qr(found, mode="r", pivoting=True)[1][: len(found)]
    return np.asarray(np.linalg.solve(found[:, first], found), np.float64)


def nearly_open_position(information: Array, scale: Array, names: Sequence[str]) -> list[str]:
    """The coordinates of all sources, if their common change is known worse from the data than from priors.

    Phases of gains make up for nearly all of it, but for what changes within a segment (physics: section 6):
    an error from the data alone, all else free, that is longer than the prior is wide leaves it to the prior.

    Parameters
    ----------
    information : float64 (n_param, n_param)
    scale : float64 (n_param,)
        Widths of the priors.
    names : sequence of str
    """
    if not any(name.startswith("gain.") and "phase" in name for name in names):
        return []
    shifts: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        kind = name.rsplit(".", 1)[-1]
        if kind in PLACES and not name.startswith(_NOT_OF_SKY):
            shifts.setdefault(kind, []).append(i)
    # One coordinate for each common change, and all parameters that are no places.
    every = [
        *shifts.values(),
        *([i] for i in range(len(names)) if not any(i in of for of in shifts.values())),
    ]
    to = np.array([np.isin(np.arange(len(names)), of) for of in every], np.float64)
    together = to @ information @ to.T
    by = 1.0 / np.sqrt(np.maximum(np.diag(together), np.finfo(float).tiny))
    inverse = np.linalg.pinv(together * np.outer(by, by), rcond=_NULL, hermitian=True)
    error = by * np.sqrt(np.maximum(np.diag(inverse), 0.0))
    pairs = zip(shifts.values(), error, strict=False)
    return [names[i] for of, sigma in pairs if sigma > scale[of].max() for i in of]


def _with_any(directions: Array, wanted: NDArray[np.bool_]) -> Array:
    """Combinations of directions (n, n_param) that change wanted parameters, one of them each."""
    if not len(directions) or not wanted.any():
        return directions[:0]
    from scipy.linalg import qr

    _, triangle, order = qr(directions[:, wanted], mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    # Each direction is 1 at a parameter of its own: what is far below that are roundings.
    first = order[: np.count_nonzero(size > 1e-4)]
    if not first.size:
        return directions[:0]
    by = np.linalg.pinv(directions[:, wanted][:, first])
    return np.asarray(by @ directions, np.float64)


def in_words(directions: Array, names: Sequence[str]) -> list[str]:
    """What directions consist of: "gain.phase[*] of scan 1, scan 2", "gain.amplitude[*] with g.I, p.I"."""
    where: dict[str, list[str]] = {}
    for direction in directions:
        members = _members(direction, names)
        kinds: dict[str, list[str]] = {}
        for name in members:
            kinds.setdefault(name.split("[")[0], []).append(name)
        first, *others = sorted(kinds, key=_rank)
        text = _kind(first, kinds[first])
        if others:
            text += f" with {first_few(_kind(key, kinds[key]) for key in others)}"
        where.setdefault(text, []).append(_segment(members))
    return [text + _of_segments(segments) for text, segments in where.items()]


def _rank(key: str) -> tuple[bool, bool, str]:
    """Gains first, what has no index next."""
    return not key.startswith("gain"), key.startswith("leakage"), key


def _kind(key: str, members: Sequence[str]) -> str:
    return members[0] if len(members) == 1 else f"{key}[*]"


def _segment(members: Sequence[str]) -> str:
    """The index behind that of the antenna that all have in common; "" where there is none."""
    indices = [re.findall(r"\[([^\]]*)\]", name)[1:2] for name in members]
    alike = len({tuple(index) for index in indices}) == 1 and len(members) > 1
    return str(indices[0][0]) if alike and indices[0] else ""


def _of_segments(segments: Sequence[str]) -> str:
    named = sorted((one for one in segments if one), key=lambda one: (len(one), one))
    if not named:
        return f" ({len(segments)} times)" if len(segments) > 1 else ""
    return f" of {'each of ' * (len(named) > 1)}{first_few(named)}"


def _draw(model: BoundModel) -> Array | None:
    """A theta near the middle of the prior that the constraints allow."""
    rng = np.random.default_rng(0)
    theta = model.prior_transform(rng.uniform(0.3, 0.7, (_TRIES, model.n_param)))
    allowed = np.flatnonzero(model.allowed(theta) & np.isfinite(model.log_prior(theta)))
    return theta[allowed[0]] if allowed.size else None


def _scales(model: BoundModel) -> Array:
    """Half the width of the middle 68 % of each prior; of a periodic parameter a radian of its turn."""
    low, high = model.prior_transform(np.array([[0.16], [0.84]]) * np.ones(model.n_param))
    period = np.array([parameter.period or np.nan for parameter in model.parameters])
    return np.where(np.isnan(period), 0.5 * (high - low), period / (2.0 * np.pi))
