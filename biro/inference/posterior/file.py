"""The file of a posterior: HDF5, laid out as netCDF4 and ArviZ InferenceData, written by h5py alone.

Groups `posterior` and `sample_stats` hold samples of equal weight by (chain, draw), for ArviZ and
anything that reads netCDF; group `biro` holds the samples as they were taken, with their weights,
and a JSON record of everything else, which is what `load` reads. Nothing in it is ever executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.diagnosis.partition_fit import PartitionFit
from biro.errors import InputError
from biro.files.atomic import write_atomic
from biro.files.foreign_text import visible, visible_texts
from biro.files.hdf5 import read_hdf5
from biro.files.json_value import JsonValue
from biro.inference.posterior.samples import Provenance, Samples
from biro.models.quantities.parameter import Column
from biro.models.quantities.strict import short_repr

POSTERIOR = "posterior.nc"
"""The name of the file in a run directory."""

S = TypeVar("S", bound=Samples)
_Types: TypeAlias = Mapping[str, type | tuple[type, ...]]
FORMAT = "biro-posterior-1"
_SCALARS = ("n_walker", "log_evidence", "log_evidence_err", "peak_log_likelihood")
_ARRAYS = ("samples", "log_likelihood", "log_prior", "log_weight", "effective", "tau", "peak")
_BY_PARAMETER = ("effective", "tau", "peak")


_NUMBER_OR_NONE = (int, float, type(None))
_NUMBER = (int, float)
_FIT_TYPES: _Types = {
    "label": str,
    "n_vis": int,
    "n_closure": int,
    "has_tails": bool,
    "is_fitted": bool,
    "is_bound": bool,
    **dict.fromkeys(("reduced_chi2", "noise_factor", "scatter", "step"), _NUMBER),
    **dict.fromkeys(("dof", "thermal", "coherent", "by_channel"), _NUMBER),
}
_RECORD_TYPES: _Types = {
    "columns": list,
    "remarks": list,
    "provenance": dict,
    "diagnostics": dict,
    "n_walker": int,
    "log_evidence": _NUMBER_OR_NONE,
    "log_evidence_err": _NUMBER_OR_NONE,
    "peak_log_likelihood": _NUMBER_OR_NONE,
}
_COLUMN_TYPES: _Types = {
    **dict.fromkeys(("name", "unit", "latex", "prior"), str),
    **dict.fromkeys(("period", "low", "high"), _NUMBER_OR_NONE),
}
_PROVENANCE_TYPES: _Types = {
    **dict.fromkeys(("sampler", "data_digest", "model_digest", "model_toml"), str),
    "seed": int,
    "options": dict,
    "versions": dict,
}


def save(posterior: Samples, path: str | os.PathLike[str]) -> None:
    """Write a posterior; the file appears as a whole or not at all."""
    # Made in memory: HDF5 that meets a full disk cannot close its file, and ends Python with a crash.
    with h5py.File("posterior", "w", driver="core", backing_store=False, track_order=True) as file:
        _write_arviz(file, posterior)
        write_own(file.create_group("biro", track_order=True), posterior)
        file.flush()
        image = file.id.get_file_image()
    write_atomic(Path(path), image)


def load(path: str | os.PathLike[str], cls: type[S]) -> S:
    """Read a posterior, as an object of the class `cls`.

    Raises
    ------
    InputError
        No such file, not a posterior of this package, or one that is damaged.
    """
    source = Path(path)
    if not source.is_file():
        if source.name == POSTERIOR and not source.parent.is_dir():
            raise InputError(f"{source.parent}: no such run directory")
        if source.name == POSTERIOR and (source.parent / "run.json").is_file():
            raise InputError(
                f"{source.parent}: the run is not finished (no {POSTERIOR}); resume it with the same command"
            )
        raise InputError(f"{source}: no such file; expected the posterior of a run")
    try:
        attributes, datasets = read_hdf5(source, [f"biro/{name}" for name in ("record", *_ARRAYS)])
        if attributes.get("format") != FORMAT:
            raise InputError(f"HDF5, but no posterior of format {FORMAT}")
        record = _checked(json.loads(datasets["biro/record"].tobytes()))
        names = [name for name in _ARRAYS if f"biro/{name}" in datasets]
        # As keyword arguments, of which mypy knows no names.
        arrays: dict[str, Any] = {name: datasets[f"biro/{name}"].astype(np.float64) for name in names}
        return cls(
            columns=tuple(Column(**column) for column in visible_texts(record["columns"])),
            provenance=Provenance(**_visible_provenance(record["provenance"])),
            diagnostics=visible_texts(record["diagnostics"]),
            fits=tuple(PartitionFit(**fit) for fit in visible_texts(record.get("fits", []))),
            remarks=tuple("\n".join(map(visible, remark.split("\n"))) for remark in record["remarks"]),
            **{name: record[name] for name in _SCALARS},
            **arrays,
        )
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    except KeyError as error:
        raise InputError(f"{source} is not a posterior of biro, or is damaged (no {error})") from error
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{source} is not a posterior of biro, or is damaged ({error})") from error


def _visible_provenance(record: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """What a table or report shows, made visible; not the model file, whose lines end in newlines."""
    return {**visible_texts(record), "model_toml": record["model_toml"]}


def _checked(record: JsonValue) -> dict[str, JsonValue]:
    """The record, if everything in it has the type that it should have.

    Raises
    ------
    TypeError
        It has not.
    """
    if isinstance(record, dict):  # Files of earlier versions have neither peak nor remarks.
        record = {"peak_log_likelihood": None, "remarks": [], **record}
    _check_types("record", record, _RECORD_TYPES)
    for column in record["columns"]:
        # Files of earlier versions have no ends.
        _check_types("column", {"low": None, "high": None, **column}, _COLUMN_TYPES)
    _check_types("provenance", record["provenance"], _PROVENANCE_TYPES)
    for fit in record.get("fits", []):  # files of earlier versions have none
        # Files of earlier versions do not know limits of the thermal noise.
        _check_types("fit", {"is_bound": False, **fit}, _FIT_TYPES)
    if not all(isinstance(remark, str) for remark in record["remarks"]):
        raise TypeError("a remark is not text")
    for value in record["diagnostics"].values():
        if not isinstance(value, int | float):
            raise TypeError(f"a diagnostic is {short_repr(value)}")
    return dict(record)


def _check_types(what: str, value: JsonValue, types: _Types) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"{what}: {short_repr(value)}")
    for name, type_ in types.items():
        if not isinstance(value[name], type_) or isinstance(value[name], bool) != (type_ is bool):
            raise TypeError(f"{name} of {what}: {short_repr(value[name])}")


def write_own(group: h5py.Group, posterior: Samples) -> None:
    record: dict[str, JsonValue] = {name: getattr(posterior, name) for name in _SCALARS}
    record["columns"] = [asdict(column) for column in posterior.columns]
    record["provenance"] = asdict(posterior.provenance)
    record["diagnostics"] = dict(posterior.diagnostics)
    record["fits"] = [asdict(fit) for fit in posterior.fits]
    record["remarks"] = list(posterior.remarks)
    dims = _Dimensions(group)
    dims.write("record", ("byte",), np.frombuffer(json.dumps(record).encode(), dtype=np.uint8))
    for name in _ARRAYS:
        value = getattr(posterior, name)
        if value is not None:
            axes = ("sample", "parameter") if name == "samples" else ("sample",)
            dims.write(name, ("parameter",) if name in _BY_PARAMETER else axes, value)


def _write_arviz(file: h5py.File, posterior: Samples) -> None:
    equal = posterior.equal_weight()
    shape = (equal.n_walker, len(equal.samples) // equal.n_walker)

    def by_chain(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values.reshape(shape[1], shape[0]).T

    provenance = posterior.provenance
    about = {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "inference_library": provenance.package,
        "inference_library_version": provenance.versions.get(provenance.package, ""),
    }
    file.attrs["format"] = FORMAT
    file.attrs.update(about)
    group = _Dimensions(file.create_group("posterior", track_order=True), about)
    for column, name in zip(equal.columns, _variable_names(equal.names), strict=True):
        values = by_chain(equal.samples[:, equal.names.index(column.name)])
        group.write(name, ("chain", "draw"), values, {"units": column.unit, "long_name": column.name})
    stats = _Dimensions(file.create_group("sample_stats", track_order=True), about)
    stats.write("lp", ("chain", "draw"), by_chain(equal.log_likelihood + equal.log_prior))
    stats.write("log_likelihood_total", ("chain", "draw"), by_chain(equal.log_likelihood))
    digests = {"data_digest": provenance.data_digest, "model_digest": provenance.model_digest}
    _Dimensions(file.create_group("observed_data", track_order=True), {**about, **digests})


def _variable_names(names: tuple[str, ...]) -> list[str]:
    """Names without "/", which would be a group, still different from each other."""
    plain: list[str] = []
    for name in names:
        candidate = name.replace("/", "|").strip() or "parameter"
        while candidate in plain or candidate in ("chain", "draw"):
            candidate += "_"
        plain.append(candidate)
    return plain


class _Dimensions:
    """A group whose variables share netCDF dimensions (HDF5 dimension scales), made as they come."""

    def __init__(self, group: h5py.Group, attributes: Mapping[str, str] | None = None) -> None:
        self._group = group
        group.attrs.update(attributes or {})

    def write(
        self, name: str, axes: tuple[str, ...], values: ArrayLike, attributes: Mapping[str, str] | None = None
    ) -> None:
        data = self._group.create_dataset(name, data=np.ascontiguousarray(values))
        data.attrs.update(attributes or {})
        for i, (axis, size) in enumerate(zip(axes, data.shape, strict=True)):
            if axis not in self._group:
                self._make_dimension(axis, size)
            data.dims[i].attach_scale(self._group[axis])

    def _make_dimension(self, axis: str, size: int) -> None:
        if axis in ("chain", "draw"):
            self._group.create_dataset(axis, data=np.arange(size, dtype=np.int64)).make_scale(axis)
            return
        scale = self._group.create_dataset(axis, shape=(size,), dtype=">f4")
        scale.make_scale(f"This is a netCDF dimension but not a netCDF variable.{size:10d}")
