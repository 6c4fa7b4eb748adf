"""`solve_gains`: an observation, a sky that is fixed, and the gains of antennas that make it fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from biro.calibration.misfit import Cut, Models, judged
from biro.calibration.solution_fit import of_raw_data, with_better_rotation
from biro.calibration.solved_gains import SolvedGains
from biro.calibration.window import Array, Index, WindowSolution, window_of
from biro.diagnosis.feed_frame import to_feeds, turns_of, weight_in_feeds
from biro.display.arguments import MODELS, OBSERVATION, takes
from biro.display.formatting import in_unit
from biro.display.progress import doing, showing
from biro.distributed.remote_data import whole
from biro.errors import InputError
from biro.files.json_value import JsonValue
from biro.models import SkyModel
from biro.models.bound.antenna_terms.segments import cut
from biro.models.quantities.strict import did_you_mean
from biro.observation.flags import warn_of_reading
from biro.observation.observation import Observation
from biro.observation.weighting import with_systematic
from biro.simulation.prediction import predict
from rime_kernels.choices import Backend, GaussianFrame
from rime_kernels.gain_solving import (
    IntervalSums,
    Solution,
    SolveOptions,
    Unknowns,
    solve_sums,
    sum_intervals,
)
from rime_kernels.gain_solving.unknowns import Mode

WORDS = ("integration", "scan", "track")
CROSS_SNR = 10.0
"""1 over the error of the phase between the feeds, rad, from which on cross hands give it."""


@takes(observation=OBSERVATION, sky=MODELS)
def solve_gains(
    observation: Observation,
    sky: SkyModel | Observation,
    *,
    interval: str | float = "integration",
    chan_blocks: int = 1,
    mode: Mode = "complex",
    feeds: Literal["separate", "common"] = "separate",
    cross_hands: Literal["auto", "on", "off"] = "auto",
    reference: str = "auto",
    min_baselines: int = 2,
    snr_limit: float = 3.0,
    values: Mapping[str, float] | None = None,
    backend: Backend = "auto",
    gaussian_frame: GaussianFrame = "tangent",
    progress: bool = True,
) -> SolvedGains:
    """Gains of antennas that make the visibilities of a sky fit an observation best, with their errors.

    Of each solution interval, block of channels, antenna and feed, the g that minimise chi2 = sum w |D_pq -
    g_p V_pq g_q^*|^2, by StefCal (Salvini & Wijnholds 2014) and Gauss-Newton steps to the minimum. V is what
    a fit predicts: beams, leakage, rotation and gains that the model has are in it, and what is solved for
    comes on top of them, as another `[[gain]]` of the model would. A systematic error of the model that is a
    number, `[noise] systematic = f`, makes 1/w + (f |g_p V_pq g_q^*|)^2 of 1/w, with gains that were solved
    for without it.

    Where a sky does not state whether linear feeds that turn on the sky turn in the data, too, gains are
    solved for both ways. Those with the rotation in the data are taken where the likelihood ratio is certain
    of them, else those of corrected data. `SolvedGains.remarks` says so, and where the data do not decide.

    Parameters
    ----------
    observation : Observation
        As it was measured: read with column="DATA" where a set has corrected data, too.
    sky : SkyModel, or Observation
        A model without free parameters that `values` does not give; or the same observation with model
        visibilities, both as `biro.read_columns(path, ["DATA", "MODEL_DATA"])` gives them.
    interval : "integration", "scan", "track", text as "60 s", or float, s
        How long gains stay as they are; seconds count from the first time. A scan ends where SCAN_NUMBER
        changes or, where that does not tell scans apart, at a pause of three integrations and a minute, and
        where the field changes.
    chan_blocks : int
        Gains in so many blocks of channels of each spectral window.
    mode : "complex", "phase" or "amplitude"
        What is solved for; the other part of a gain is left 1.
    feeds : "separate" or "common"
        Gains of data in Stokes parameters are common.
    cross_hands : "auto", "on" or "off"
        Whether cross hands count, too. With separate feeds they tie the phases of both feeds together, which
        parallel hands cannot; "auto" takes them where the model's polarisation would give this difference to
        0.1 rad in a solution. The model must then have the polarisation and leakage of the data.
    reference : str
        Antenna whose phase is 0; "auto" is the most sensitive one. Where it has too little data, the next
        most sensitive antenna stands in, which is said.
    min_baselines : int
        Antennas with fewer baselines in an interval have no solution there.
    snr_limit : float
        Solutions of a lower signal-to-noise ratio 1 / (error of ln |g|) are flagged; of phases, 1 / (error in
        rad).
    values : mapping name -> float, optional
        Values of the sky model's free parameters.
    backend : "auto", "cpu" or "cuda"
        Where visibilities are predicted; gains are solved for on the CPU.
    gaussian_frame : "tangent" or "uv"
    progress : bool
        Show a bar on stderr of what takes longer than two seconds.

    Returns
    -------
    SolvedGains

    Raises
    ------
    InputError
        Data with baselines between circular and linear feeds; data in Stokes parameters with gains of
        separate feeds; a reference antenna that is missing or wholly
        flagged; a model that is 0 wherever there are data; an interval or a number of blocks that cannot be;
        a model that does not belong to the data.

    Examples
    --------
    >>> gains = solve_gains(observation, sky, interval=60.0)  # doctest: +SKIP
    >>> gains.save("gains.npz")  # doctest: +SKIP
    """
    _refuse_mixed(observation)
    warn_of_reading(observation)
    whole = observation.whole("gains that are solved for")
    options: dict[str, Any] = {
        "interval": interval,
        "chan_blocks": chan_blocks,
        "mode": mode,
        "feeds": feeds,
        "cross_hands": cross_hands,
        "reference": reference,
        "min_baselines": min_baselines,
        "snr_limit": snr_limit,
        "values": values,
        "backend": backend,
        "gaussian_frame": gaussian_frame,
    }
    with showing(progress), doing("solving for gains"):
        solved = _solved(whole, sky, **options)
        if isinstance(sky, SkyModel):
            solved = with_better_rotation(
                solved,
                sky,
                lambda other, cross: _solved(
                    whole, other, **options | ({"cross_hands": cross} if cross else {})
                ),
                lambda other: _model_of(whole, other, values, backend, gaussian_frame),
            )
            sky = of_raw_data(sky) if solved.taken_out else sky

        def of_some(some: Observation, cuts: Sequence[Cut]) -> Models:
            seen = sky
            if not isinstance(sky, SkyModel):
                pairs = zip(sky.partitions, cuts, strict=True)
                seen = replace(sky, partitions=tuple(part.some(*cut) for part, cut in pairs))
            return _model_of(some, seen, values, backend, gaussian_frame)

        return judged(solved, of_some)


def gains_of_model(
    observation: Observation, model: Observation, *, interval: str | float, mode: Mode
) -> SolvedGains:
    """Gains common to both feeds, with no test of the residuals, for cycles of self-calibration.

    Parameters
    ----------
    observation : Observation
    model : Observation
        The same observation with model visibilities.
    interval : str or float, s
    mode : "complex", "phase" or "amplitude"
        As `solve_gains` takes them.
    """
    return _solved(
        observation,
        model,
        interval=interval,
        chan_blocks=1,
        mode=mode,
        feeds="common",
        cross_hands="off",
        reference="auto",
        min_baselines=2,
        snr_limit=0.0,
        values=None,
        backend="auto",
        gaussian_frame="tangent",
    )


def _solved(
    observation: Observation,
    sky: SkyModel | Observation,
    *,
    interval: str | float,
    chan_blocks: int,
    mode: Mode,
    feeds: Literal["separate", "common"],
    cross_hands: Literal["auto", "on", "off"],
    reference: str,
    min_baselines: int,
    snr_limit: float,
    values: Mapping[str, float] | None,
    backend: Backend,
    gaussian_frame: GaussianFrame,
) -> SolvedGains:
    """Gains for one state of the feeds; see `solve_gains`."""
    options = SolveOptions(mode, min_baselines)
    if not snr_limit >= 0.0:
        raise InputError(f"snr_limit must be 0 or more, got {snr_limit}")
    fraction = sky.noise.fixed_fraction if isinstance(sky, SkyModel) else 0.0
    if isinstance(sky, SkyModel) and fraction > 0.0:
        # A fraction of what the model and the gains expect: gains are solved for twice.
        sky = replace(sky, noise=replace(sky.noise, systematic=None))
        rough = _solved(
            observation,
            sky,
            interval=interval,
            chan_blocks=chan_blocks,
            mode=mode,
            feeds=feeds,
            cross_hands=cross_hands,
            reference=reference,
            min_baselines=min_baselines,
            snr_limit=3.0,
            values=values,
            backend=backend,
            gaussian_frame=gaussian_frame,
        )
        of_sky = _model_of(observation, sky, values, backend, gaussian_frame)
        expected = (gain * vis for gain, vis in zip(rough.amplitudes(), of_sky, strict=True))
        observation = with_systematic(observation, fraction, expected)
    segments = cut(_checked_interval(interval), observation.partition_views)
    windows = _windows(observation)
    if cross_hands not in ("auto", "on", "off"):
        raise InputError(f"cross_hands must be auto, on or off, got {cross_hands!r}")
    with_cross = cross_hands != "off"
    unknowns = [
        Unknowns(observation.n_antenna, part.corr_type, feeds, with_cross) for part in observation.partitions
    ]
    blocks = [_blocks(observation.partitions[window[0]].n_chan, chan_blocks) for window in windows]
    block_of = {i: blocks[k] for k, window in enumerate(windows) for i in window}
    sums: dict[int, IntervalSums] = {}
    vis = _model_of(observation, sky, values, backend, gaussian_frame)
    turns = (
        turns_of(observation, sky, feeds == "separate")
        if isinstance(sky, SkyModel)
        else [None] * len(unknowns)
    )
    for i, (part, model) in enumerate(zip(observation.partitions, vis, strict=True)):
        data, weight, turn = part.vis, part.weight, turns[i]
        if turn is not None:
            data, model, weight = (
                to_feeds(part, turn, data),
                to_feeds(part, turn, model),
                weight_in_feeds(part, turn),
            )
        found = sum_intervals(
            data,
            model,
            weight,
            antennas=(part.antenna1, part.antenna2),
            interval=segments.of_time[i][part.time_index],
            block=block_of[i],
            n_interval=segments.middle.size,
            unknowns=unknowns[i],
        )
        first = next(window[0] for window in windows if i in window)
        sums[first] = sums[first] + found if first in sums else found
    each = [(sums[w[0]], unknowns[w[0]]) for w in windows]
    if cross_hands == "auto":
        each = [_without_weak_cross_hands(*one) for one in each]
    order = _order(observation, reference, each)
    solutions = [solve_sums(*one, options, order) for one in each]
    settings: dict[str, JsonValue] = {"mode": mode, "interval": _interval_text(interval), "feeds": feeds}
    settings |= {"chan_blocks": chan_blocks, "min_baselines": min_baselines, "snr_limit": snr_limit}
    settings |= {"cross_hands": any(one.is_joint for _, one in each)}
    return SolvedGains(
        observation,
        tuple(
            _window(observation, w, b, s, one[1], snr_limit)
            for w, b, s, one in zip(windows, blocks, solutions, each, strict=True)
        ),
        segments,
        settings,
        observation.antenna_names[order[0]],
        tuple(turns),
    )


def _without_weak_cross_hands(sums: IntervalSums, unknowns: Unknowns) -> tuple[IntervalSums, Unknowns]:
    """Sums of parallel hands alone, where cross hands would not tie the phases of both feeds together."""
    if not unknowns.is_joint:
        return sums, unknowns
    seen = sums.count.any(axis=-1)
    information = (sums.model[..., 1::4] + sums.model[..., 2::4]).sum(axis=-1)[seen]
    if information.size and np.median(information) > CROSS_SNR**2:
        return sums, unknowns
    return sums.of_parallel_hands(), replace(unknowns, cross_hands=False)


def _checked_interval(interval: str | float) -> str | float:
    if isinstance(interval, str):
        if interval in WORDS:
            return interval
        if not interval.strip()[:1].isdigit():
            raise InputError(f"interval must be {', '.join(WORDS)} or a time as 60 s, got {interval!r}")
        interval = in_unit(interval, "s", "interval")
    if not 0.0 < interval < np.inf:
        raise InputError(f"interval must be above 0 s, got {interval}")
    return float(interval)


def _interval_text(interval: str | float) -> str:
    return interval if isinstance(interval, str) else f"{interval:g} s"


def _windows(observation: Observation) -> list[tuple[int, ...]]:
    """Numbers of the partitions that share a spectral window, feeds and correlations."""
    found: dict[object, list[int]] = {}
    for i, part in enumerate(observation.partitions):
        key = (part.set_name, part.spw_id, part.chan_freq.tobytes(), part.corr_type)
        found.setdefault(key, []).append(i)
    return [tuple(each) for each in found.values()]


def _refuse_mixed(observation: Observation) -> None:
    """Refuse circular and linear feeds in one spectral window: its partitions share gains of antennas."""
    found: dict[object, set[str]] = {}
    for part in observation.partitions:
        key = (part.set_name, part.spw_id, part.chan_freq.tobytes())
        found.setdefault(key, set()).update(name for name in part.corr_type if len(name) == 2)
    for names in found.values():
        if all(any(set(name) & set(kind) for name in names) for kind in ("RL", "XY")):
            raise InputError(
                f"the data have circular and linear feeds ({', '.join(sorted(names))}), and gains are solved "
                "for feeds of one kind; read antennas of one kind (--antennas, antennas= in Python), or the "
                "baselines between them (--correlations XX,XY,YX,YY)"
            )


def _blocks(n_chan: int, n_block: int) -> Index:
    """The block of each channel, as even as can be."""
    if not 1 <= n_block <= n_chan:
        raise InputError(f"chan_blocks must be 1 to the number of channels, {n_chan}, got {n_block}")
    return np.arange(n_chan) * n_block // n_chan


def _model_of(
    observation: Observation,
    sky: SkyModel | Observation,
    values: Mapping[str, float] | None,
    backend: Backend,
    gaussian_frame: GaussianFrame,
) -> Iterable[NDArray[np.complexfloating]]:
    """Model visibilities of each partition."""
    if isinstance(sky, SkyModel):
        models = predict(observation, sky, values=values, backend=backend, gaussian_frame=gaussian_frame)
        return map(whole, models)
    return _of_column(observation, sky)


def _of_column(observation: Observation, model: Observation) -> Iterator[NDArray[np.complexfloating]]:
    ours, theirs = observation.partitions, model.partitions
    if len(ours) != len(theirs):
        raise InputError(
            f"the model has {len(theirs)} partitions, the data have {len(ours)}; read both with the "
            "same options (biro.read_columns)"
        )
    for part, other in zip(ours, theirs, strict=True):
        if not np.array_equal(part.row_id, other.row_id) or part.vis.shape != other.vis.shape:
            raise InputError(
                "the rows, channels or correlations of the model differ from those of the data; read both "
                "with the same options (biro.read_columns)"
            )
        yield other.vis


def _order(observation: Observation, reference: str, found: list[tuple[IntervalSums, Unknowns]]) -> Index:
    """Numbers of antennas, the reference first and then the most sensitive ones.

    Raises
    ------
    InputError
    """
    sensitivity, n_data = np.zeros(observation.n_antenna), np.zeros(observation.n_antenna)
    for sums, unknowns in found:
        for nodes in unknowns.nodes:
            antenna = nodes // (unknowns.n_node // unknowns.n_antenna)
            np.add.at(sensitivity, antenna, sums.model.sum(axis=(0, 1, 2)))
            np.add.at(n_data, antenna, sums.count.sum(axis=(0, 1, 2)))
    if not n_data.any():
        raise InputError("no data to solve gains from: all cross-correlations are flagged or missing")
    if not sensitivity.any():
        raise InputError("the model is 0 Jy at all data, so gains cannot be solved; give a sky with flux")
    order = np.argsort(-sensitivity, kind="stable")
    if reference == "auto":
        return order
    names = observation.antenna_names
    if reference not in names:
        raise InputError(f"no antenna {reference!r} for the reference{did_you_mean(reference, names)}")
    chosen = names.index(reference)
    if not n_data[chosen]:
        raise InputError(
            f"the reference antenna {reference} has no unflagged data; choose another one, for example "
            f"{names[order[0]]}, the most sensitive"
        )
    return np.concatenate([[chosen], order[order != chosen]])


def _window(
    observation: Observation,
    partitions: tuple[int, ...],
    block: Index,
    solution: Solution,
    unknowns: Unknowns,
    snr_limit: float,
) -> WindowSolution:
    part = observation.partitions[partitions[0]]
    widths: Array = part.chan_width
    axes = part.spw_id, partitions, part.chan_freq, widths, block
    return window_of(part.spw, axes, solution, unknowns, snr_limit)
