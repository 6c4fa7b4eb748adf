"""The table of a posterior: intervals of each parameter, best fit, evidence and warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from biro.diagnosis.partition_fit import PartitionFit, fit_lines
from biro.diagnosis.prior_conflict import CONFLICT
from biro.display.formatting import Tabular, digits_after_point, first_few, plain
from biro.errors import InputError
from biro.inference.maximum.modes import COUNTS, missed_warning
from biro.inference.posterior.pareto import TRUSTED
from biro.inference.posterior.samples import Samples
from biro.inference.posterior.statistics import quantiles
from biro.models.components.antenna_terms.gain import is_gain
from biro.models.quantities.parameter import Column

LEVELS = (0.025, 0.15865525393145707, 0.5, 0.8413447460685429, 0.975)
"""95 %, 68.27 % (one sigma of a Gaussian) and the median."""
_REMEDY = {
    "emcee": "the chain is too short. Raise max_steps and resume",
    "none": "the climb did not reach the maximum. Give other starts, or use a sampler",
    "tempering": "raise n_effective and max_steps and resume",
    "nuts": "raise n_draw and resume; where there are divergences, raise target_accept instead",
}
POOR = 0.1
"""Overlap of a normal distribution with the posterior below which its intervals mislead."""
LEAST_SHOWN = 0.005
"""Part of the evidence in unexplored modes that is worth a word."""
LEAST_TRIPS = 16.0
"""Round trips of "tempering" between prior and posterior: weights of modes are then known to 0.12."""
MOST_REJECTED = 0.9
"""Temperatures whose swaps are rejected more often are too far apart for the evidence."""
LEAST_BFMI = 0.2
"""Fraction of missing information of the energy below which chains of NUTS do not reach the tails."""
MOST_GAINS = 20
"""Parameters of gains up to which each has a row of its own in print."""
NOISE = "noise.factor"
"""What the names of noise factors begin with."""


@dataclass(frozen=True)
class Row:
    """One parameter: median and interval bounds, in `unit`.

    Bounds of a parameter that wraps are continued through the wrap (178 to 184 degrees), so that
    low <= median <= high always. `at_end` is "lower" or "upper" where that end of its prior cuts a
    posterior off.
    """

    name: str
    unit: str
    median: float
    low_68: float
    high_68: float
    low_95: float
    high_95: float
    best_fit: float
    ess: float
    tau: float | None
    at_end: str = ""
    period: float | None = None


@dataclass(frozen=True, repr=False)
class PosteriorTable(Tabular):
    """What `Posterior.summary` gives; `str` prints it, `to_dict` is for JSON.

    Where `limits_were_tested`, a parameter at a limit of its prior that does not contradict the data is named
    below the table, not above it.
    """

    rows: tuple[Row, ...]
    sampler: str
    n_sample: int
    n_walker: int
    best_log_likelihood: float
    log_evidence: float | None
    log_evidence_err: float | None
    diagnostics: dict[str, float]
    fits: tuple[PartitionFit, ...] = ()
    remarks: tuple[str, ...] = ()
    limits_were_tested: bool = False

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise InputError(f"no parameter {name!r}; there are {', '.join(row.name for row in self.rows)}")

    def __repr__(self) -> str:
        return f"<PosteriorTable of {len(self.rows)} parameters, sampler {self.sampler}; print shows it>"

    def to_dict(self) -> dict[str, object]:
        """Plain numbers and text; parameters by name."""
        record = asdict(self) | {"warnings": self.warnings(), "missed_mass": self.missed_mass}
        rows = [{key: value for key, value in row.items() if key != "period"} for row in record.pop("rows")]
        record["parameters"] = {row.pop("name"): row for row in rows}
        return record

    @property
    def noise_is_cut_off(self) -> bool:
        """Whether the prior of a noise factor cuts it off, so that no error can be trusted."""
        return any(row.at_end and row.name.startswith(NOISE) for row in self.rows)

    @property
    def missed_mass(self) -> float:
        """Estimated part of the posterior in modes that were not found, or that no chain explored."""
        return max(self.diagnostics.get(name, 0.0) for name in ("missed_mass", "unexplored"))

    @property
    def is_doubtful(self) -> bool:
        """Whether no error can be trusted: the noise is cut off, or modes are missing."""
        return self.noise_is_cut_off or self.missed_mass > COUNTS

    @property
    def evidence_is_trusted(self) -> bool:
        """Whether no diagnostic of the run says that the evidence may be off by more than its error."""
        converged = self.diagnostics.get("converged", 1.0) != 0.0
        return converged and not self._few_weights and not self.is_doubtful

    @property
    def _few_weights(self) -> bool:
        """Whether a few draws of "none" have most of the weight, and no tempered run has covered the rest."""
        has_tail = self.diagnostics.get("pareto_k", -math.inf) > TRUSTED
        return has_tail and not self.diagnostics.get("covered")

    def cells(self) -> list[list[str]]:
        """Header and rows as text, numbers rounded to what their uncertainty supports.

        A question mark stands behind each error that cannot be trusted. Where there are many gains, those of
        an antenna are one row, at the end: the range of the medians, and typical errors.
        """
        head = ["parameter", "unit", "median", "-68 %", "+68 %", "95 %", "best fit", "ESS"]
        with_tau = any(row.tau is not None for row in self.rows)
        gains = [row for row in self.rows if is_gain(row.name)]
        few = len(gains) <= MOST_GAINS
        cells = [
            _cells(row, with_tau, doubtful=self.is_doubtful)
            for row in self.rows
            if few or not is_gain(row.name)
        ]
        return [
            head + ["tau"] * with_tau,
            *cells,
            *([] if few else _cells_of_gains(gains, len(head) + with_tau)),
        ]

    def warnings(self) -> list[str]:
        """Lines above the table: why its figures may mislead, the gravest first; mostly there are none."""
        lines = [_noise_cut_off(row) for row in self.rows if row.at_end and row.name.startswith(NOISE)]
        if self.missed_mass > COUNTS:
            lines.append(missed_warning(self.missed_mass))
        if self.diagnostics.get("converged", 1.0) == 0.0:
            lines.append(f"NOT CONVERGED: {_how_far(self)}{_REMEDY.get(self.sampler, 'sample for longer')}")
        lines += self._about_weights()
        n_mode = round(self.diagnostics.get("n_mode", 1.0))
        if n_mode > 1:
            lines.append(_several_modes(n_mode, self.sampler, self.diagnostics, self.missed_mass))
        lines += self.remarks
        return lines if self.limits_were_tested else [*lines, *self._cut_off()]

    def notes(self) -> list[str]:
        """Lines below the table: sampler, best likelihood, evidence, diagnostics, fit of each partition."""
        cut_off = self._cut_off() if self.limits_were_tested else []
        return [*self._origin(), *fit_lines(self.fits), *self._modulo(), *cut_off]

    def _modulo(self) -> list[str]:
        """Periodic parameters by their period, once each: their intervals may reach beyond the prior."""
        of: dict[str, list[str]] = {}
        for row in self.rows:
            if row.period is not None and not is_gain(row.name):
                of.setdefault(f"{plain(row.period, 4)} {row.unit}".strip(), []).append(row.name)
        return [f"modulo {period}: {first_few(names)}" for period, names in of.items()]

    def _cut_off(self) -> list[str]:
        """Parameters that are most probable at a limit of their prior, but for those that contradict it."""
        lines = []
        for row in self.rows:
            named = f"{CONFLICT}: {row.name} is CUT OFF"
            if row.at_end and not row.name.startswith(NOISE) and not any(named in r for r in self.remarks):
                kind = "upper" if row.at_end == "lower" else "lower"
                lines.append(
                    f"{kind.upper()} LIMIT: {row.name} is most probable at the {row.at_end} limit of its "
                    f"prior. Quote its interval as {'an' if kind == 'upper' else 'a'} {kind} limit"
                )
        return lines

    def _origin(self) -> list[str]:
        if self.sampler == "none":
            return [*_about_maximum(self), *self.evidence_lines()]
        origin = f"{self.sampler}: {self.n_sample} samples"
        if self.n_walker > 1:
            whose = "chains" if self.sampler == "nuts" else "walkers"
            origin += f" of {self.n_walker} {whose} (ESS in the table: effective sample size)"
        lines = [origin, f"highest log-likelihood {self.best_log_likelihood:.3f}", *self.evidence_lines()]
        if "r_hat" in self.diagnostics:
            words = {
                "n_rung": "{:.0f} temperatures",
                "n_round_trip": "{:.0f} round trips between prior and posterior",
                "r_hat": "R-hat {:.4f}",
                "n_divergent": "{:.0f} divergences",
                "n_outside": "{:.0f} trajectories that ended at a limit of a prior or region",
                "bfmi": "energy (BFMI) {:.2f}",
                "depth": "mean depth {:.1f}",
            }
            facts = {key: value for key, value in self.diagnostics.items() if key != "n_outside" or value}
            lines.append(", ".join(text.format(facts[key]) for key, text in words.items() if key in facts))
        return lines

    def _about_weights(self) -> list[str]:
        """Whether the weights of the draws of "none" are worth anything."""
        k, overlap = self.diagnostics.get("pareto_k", -math.inf), self.diagnostics.get("overlap", 1.0)
        if self._few_weights:
            return [
                f"DO NOT TRUST INTERVALS AND EVIDENCE: Pareto k = {k:.2f} (good if < {TRUSTED}). The "
                "posterior is far from normal, and a few draws carry most of the weight. Use --sampler "
                "emcee or dynesty"
            ]
        if overlap < POOR:
            return [
                f"LOW EFFICIENCY: the importance-sampling efficiency is {100 * overlap:.0f} %, so the "
                "normal approximation is poor. Use --sampler emcee or dynesty"
            ]
        return []

    def evidence_lines(self) -> list[str]:
        """The evidence in words; nothing where it is not known."""
        if self.log_evidence is None:
            return []
        mark = "?" * (self.missed_mass > COUNTS)
        line = f"log-evidence {self.log_evidence:.3f}{mark} +- {self.log_evidence_err or 0.0:.3f}{mark}"
        if "log_evidence_gains" in self.diagnostics:
            part, error = (self.diagnostics[f"log_evidence_gains{end}"] for end in ("", "_err"))
            line += (
                f", including a correction of {part:+.3f} +- {error:.3f} to the Laplace approximation of "
                "the gains"
            )
        return [line]


def summarise(posterior: Samples) -> PosteriorTable:
    """Table of a posterior."""
    best, weight = posterior.best_fit, posterior.weight
    rows = []
    for i, column in enumerate(posterior.columns):
        low_95, low_68, median, high_68, high_95 = quantiles(
            posterior.samples[:, i], weight, LEVELS, column.period
        )
        tau = None if posterior.tau is None else float(posterior.tau[i])
        ess = float(posterior.effective[i])
        bounds = (low_68, high_68, low_95, high_95)
        end = _cut_off(posterior.samples[:, i], weight, column)
        rows.append(
            Row(column.name, column.unit, median, *bounds, float(best[i]), ess, tau, end, column.period)
        )
    return PosteriorTable(
        rows=tuple(rows),
        sampler=posterior.provenance.sampler,
        n_sample=len(posterior.samples),
        n_walker=posterior.n_walker,
        best_log_likelihood=posterior.best_log_likelihood,
        log_evidence=posterior.log_evidence,
        log_evidence_err=posterior.log_evidence_err,
        diagnostics=dict(posterior.diagnostics),
        fits=posterior.fits,
        remarks=posterior.remarks,
        limits_were_tested=posterior.peak is not None,
    )


def _cut_off(values: NDArray[np.float64], weight: NDArray[np.float64], column: Column) -> str:
    """Whether a posterior is highest at the "lower" or "upper" end of its prior; "" where at neither.

    There a tenth or more lies within a quarter of a standard deviation of the end: of half a normal
    distribution 12 %, of an exponential one 22 %. A posterior that is as flat as its prior has 7 %, and with
    0.29 of the prior's width is wider than any that counts.
    """
    sd = math.sqrt(np.sum(weight * (values - np.sum(weight * values)) ** 2))
    if column.low is not None and column.high is not None and sd > 0.25 * (column.high - column.low):
        return ""
    for end, word in ((column.low, "lower"), (column.high, "upper")):
        if end is not None and np.sum(weight[np.abs(values - end) <= 0.25 * sd]) >= 0.1:
            return word
    return ""


def _about_maximum(table: PosteriorTable) -> list[str]:
    """How draws about a maximum came to be, and how far to trust them."""
    overlap = table.diagnostics.get("overlap", math.nan)
    k = table.diagnostics.get("pareto_k", math.nan)
    about = "it" if table.diagnostics.get("n_mode", 1.0) < 2.0 else "all modes"
    return [
        f"no sampler: maximum (best fit) and {table.n_sample} weighted draws around {about}",
        f"importance-sampling efficiency {100 * overlap:.0f} %, Pareto k "
        f"{'below 0' if k < 0.0 else f'{k:.2f}'} (good if < {TRUSTED})",
        f"highest log-likelihood {table.best_log_likelihood:.3f}",
    ]


def _how_far(table: PosteriorTable) -> str:
    """How far chains are from agreeing, and what to do instead where NUTS has gains."""
    if "r_hat" not in table.diagnostics:
        return ""
    if table.sampler == "tempering":
        n_trip, r_hat = (table.diagnostics.get(name, math.nan) for name in ("n_round_trip", "r_hat"))
        worst = table.diagnostics.get("most_rejected", 0.0)
        apart = (
            f". Swaps of two temperatures are rejected in {100 * worst:.0f} % of the cases (good if < "
            f"{100 * MOST_REJECTED:.0f} %). If that stays so, give another seed and directory"
        )
        return (
            f"round trips between prior and posterior: {n_trip:.0f} (good if {LEAST_TRIPS:.0f} or "
            f"more), {table.diagnostics.get('n_effective', math.nan):.0f} effective draws, and R-hat is "
            f"{r_hat:.3f} (good if < 1.01){apart if worst >= MOST_REJECTED else ''}. To converge, "
        )
    r_hat, bfmi = table.diagnostics["r_hat"], table.diagnostics.get("bfmi", math.nan)
    words = f"R-hat is {r_hat:.3f} (good if < 1.01), BFMI {bfmi:.2f} (good if > {LEAST_BFMI}). To converge, "
    if any(is_gain(row.name) for row in table.rows):
        words += 'integrate over the gains (gains="marginalise"), or '
    return words


def _several_modes(n_mode: int, sampler: str, diagnostics: Mapping[str, float], missed: float) -> str:
    """What it means for a table that there are several maxima."""
    line = f"SEVERAL MODES: the posterior has {n_mode} separate maxima of similar evidence. "
    if sampler == "nuts":
        line += _of_chains(diagnostics, missed)
    elif "share_error" in diagnostics:
        line += (
            "Medians and intervals cover all of them. ESS includes the error of the weight of each mode "
            f"({100 * diagnostics['share_error']:.1f} % for the largest)"
        )
    else:
        line += f"Medians and intervals cover {_which(missed)}"
    if diagnostics.get("n_exchangeable", 0.0) > 1:
        line += (
            ". Sources with the same priors can be exchanged. To tell them apart, write a constraint on "
            "their order"
        )
    return line


def _which(missed: float) -> str:
    """Which modes a table is about."""
    return "the modes that were found" if missed > COUNTS else "all of them together"


def _of_chains(diagnostics: Mapping[str, float], missed: float) -> str:
    """What the chains of NUTS have seen of several modes."""
    if "share_error" not in diagnostics:
        if diagnostics.get("n_explored") == 1.0:
            return "All chains are in the largest. The others have less than 1 % of the evidence"
        return (
            "Chains began in all of them. Medians and intervals cover what the chains visited. R-hat "
            "shows whether they moved between modes often enough"
        )
    line = (
        f"Each chain stayed in one of {diagnostics['n_explored']:.0f} regions, and its draws are weighted "
        "by the evidence of that region (error of the largest weight "
        f"{100 * diagnostics['share_error']:.1f} %). Medians and intervals cover {_which(missed)}"
    )
    unexplored = diagnostics.get("unexplored", 0.0)
    if unexplored >= LEAST_SHOWN:
        line += f". {100 * unexplored:.0f} % of the evidence is in modes that no chain explored"
    return line


def _noise_cut_off(row: Row) -> str:
    """What it means that the prior of a noise factor cuts it off."""
    more = {
        "upper": "The noise is larger than the prior allows, so all errors below are too small",
        "lower": "The noise is smaller than the prior allows, so all errors below are too large",
    }
    return (
        f"DO NOT TRUST THE ERRORS: {row.name} is CUT OFF at the {row.at_end} limit of its prior. "
        f"{more[row.at_end]}. Widen the prior of [noise] factor"
    )


def _cells(row: Row, with_tau: bool, *, doubtful: bool) -> list[str]:
    digits = digits_after_point(0.5 * (row.high_68 - row.low_68))

    def text(value: float) -> str:
        if digits > 9 or abs(value) >= 1e9:
            return f"{value:.10g}"
        return f"{value:.{digits}f}"

    mark = "?" * doubtful
    cells = [row.name, row.unit, text(row.median), text(row.low_68 - row.median) + mark]
    cells += [f"+{text(row.high_68 - row.median)}{mark}"]
    cells += [f"{text(row.low_95)} .. {text(row.high_95)}{mark}"]
    cells += [text(row.best_fit), f"{row.ess:.0f}" if row.ess > 0.0 else "-"]
    if with_tau:
        cells.append("" if row.tau is None else f"{row.tau:.1f}")
    return cells


def _cells_of_gains(rows: Sequence[Row], n_column: int) -> list[list[str]]:
    """A row for each quantity and antenna: range of medians, typical errors, range of 95 %, least ESS."""
    of: dict[str, list[Row]] = {}
    for row in rows:
        of.setdefault(row.name.split("]")[0] + "]", []).append(row)
    cells = []
    for name, members in of.items():
        low = float(np.median([row.median - row.low_68 for row in members]))
        high = float(np.median([row.high_68 - row.median for row in members]))
        digits = min(9, digits_after_point(0.5 * (low + high)))
        medians = [row.median for row in members]
        wide = min(row.low_95 for row in members), max(row.high_95 for row in members)
        ess = min(row.ess for row in members)
        label = f"{name} ({len(members)} segments)" if len(members) > 1 else members[0].name
        one = [label, members[0].unit, _range(min(medians), max(medians), digits)]
        one += [
            f"{-low:.{digits}f}",
            f"+{high:.{digits}f}",
            _range(*wide, digits),
            "",
            f"{ess:.0f}" if ess > 0 else "-",
        ]
        cells.append(one + [""] * (n_column - len(one)))
    return cells


def _range(low: float, high: float, digits: int) -> str:
    return f"{low:.{digits}f}" if low == high else f"{low:.{digits}f} .. {high:.{digits}f}"
