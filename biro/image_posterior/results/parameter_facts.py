"""Parameters of components beside an image, for the summary and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import digits_after_point
from biro.files.json_value import JsonValue

Array = NDArray[np.float64]


def parameter_facts(names: Sequence[str], units: Sequence[str], draws: Array) -> dict[str, JsonValue]:
    """Facts of an image that its summary and JSON show: mean and standard deviation of each parameter.

    Parameters
    ----------
    names, units : sequence of str
    draws : float64 (n_sample, n_param)
        In these units; one row of a most probable value.
    """
    rows: list[JsonValue] = []
    for name, unit, own in zip(names, units, np.asarray(draws).T, strict=True):
        sd = float(own.std(ddof=1)) if len(own) > 1 else None
        rows.append({"name": name, "unit": unit, "mean": float(own.mean()), "sd": sd})
    return {"parameters": rows}


def parameter_draws(facts: Mapping[str, JsonValue], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
    """Draws of each parameter, float64 (n_sample,), in the unit that the facts state."""
    names = [str(row["name"]) for row in _rows(facts)]
    return dict(zip(names, np.asarray(arrays["parameters"]).T, strict=True)) if names else {}


def beside_lines(facts: Mapping[str, JsonValue]) -> list[str]:
    """Lines of a summary: chi2 of closures or of a map, ELBO, and each parameter with its error."""
    rows, closures = _rows(facts), cast("dict[str, Any]", facts.get("closures", {}))
    of_map = cast("dict[str, Any]", facts.get("single_dish", {}))
    width = max((len(str(row["name"])) for row in rows), default=0)
    lines = []
    if closures:
        n_phase, n_amplitude = closures["n_phase"], closures["n_amplitude"]
        lines = [
            f"chi2/N        {closures['chi2_phase'] / max(n_phase, 1):.4g} of {n_phase} closure phases, "
            f"{closures['chi2_amplitude'] / max(n_amplitude, 1):.4g} of {n_amplitude} log closure amplitudes",
            *closures["lines"],
        ]
    if of_map:
        sd = of_map["scale_sd"]
        error = "" if sd is None else f" +- {sd:.2g}"
        lines.append(
            f"map           chi2/N {of_map['chi2'] / of_map['n_independent']:.4g} of "
            f"{of_map['n_independent']:.3g} independent samples, flux scale {of_map['scale']:.4g}{error}"
        )
    if "elbo" in facts:
        elbo = cast("dict[str, Any]", facts["elbo"])
        error = ", error not known" if elbo["error"] is None else f" +- {elbo['error']:.2g}"
        lines.append(f"ELBO          {elbo['value']:.2f}{error}, at most ln evidence")
    for row in rows:
        mean, sd = row["mean"], row["sd"]
        text = f"{mean:.6g}"
        if sd is not None:
            digits = digits_after_point(sd)
            text = f"{mean:.{digits}f} +- {sd:.{digits}f}"
        lines.append(f"{row['name']:<{width}}  {text} {row['unit']}".rstrip())
    return lines


def _rows(facts: Mapping[str, JsonValue]) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", facts.get("parameters", []))
