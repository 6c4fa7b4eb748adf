"""Images, posteriors, run directories and antenna files that mean harm; found by fuzzing (tests/fuzz.py)."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hostile import outcomes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biro.errors import BiroError, InputError, RunError
from biro.files import fits_vetting, hdf5
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.samples import Provenance
from biro.inference.samplers.emcee_chain import FILE as CHAIN
from biro.inference.samplers.emcee_chain import ChainFile
from biro.inference.samplers.nuts_draws import STATS, NutsDrawsFile
from biro.models.quantities.parameter import Column
from biro.run.directory import RunDirectory

Cards = list[tuple[str, object]]
SKY: Cards = [
    *(("CTYPE1", "'RA---SIN'"), ("CRVAL1", 10.0), ("CDELT1", -0.1), ("CRPIX1", 3.0)),
    *(("CTYPE2", "'DEC--SIN'"), ("CRVAL2", 5.0), ("CDELT2", 0.1), ("CRPIX2", 3.0)),
    *(("BUNIT", "'Jy/pixel'"), ("RADESYS", "'ICRS'")),
]
FREQ: Cards = [("CTYPE3", "'FREQ'"), ("CRVAL3", 1e9), ("CDELT3", 1e8), ("CRPIX3", 1.0)]
ONE_COLUMN: Cards = [("TTYPE1", "'BMAJ'"), ("TFORM1", "'1E'")]
DATA = bytes(2880)


class Command:
    """Its pickle makes a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def gives_or_refuses(read: Callable[[], object]) -> None:
    """A reader may give something, or refuse in one line."""
    said = ""
    try:
        read()
    except BiroError as error:
        said = str(error)
    assert "\n" not in said


def header(cards: Cards) -> bytes:
    text = b"".join(f"{name:<8}= {value!s:>20}".ljust(80).encode() for name, value in cards) + b"END"
    return text.ljust(-(-len(text) // 2880) * 2880)


def image(axes: list[int], bitpix: object = -32, extra: Cards | None = None, n_axis: object = None) -> bytes:
    sizes: Cards = [(f"NAXIS{i + 1}", n) for i, n in enumerate(axes)]
    first: Cards = [("SIMPLE", "T"), ("BITPIX", bitpix), ("NAXIS", len(axes) if n_axis is None else n_axis)]
    return header([*first, *sizes, *(extra or []), *SKY])


EMPTY = header([("SIMPLE", "T"), ("BITPIX", 8), ("NAXIS", 0)])
BEGIN = b"SIMPLE  =                    T".ljust(80)


def table(rows: int, width: int, extra: Cards) -> bytes:
    sizes: Cards = [("BITPIX", 8), ("NAXIS", 2), ("NAXIS1", width), ("NAXIS2", rows), ("PCOUNT", 0)]
    return header([("XTENSION", "'BINTABLE'"), *sizes, ("GCOUNT", 1), *extra])


def compressed(n: int, tile: int) -> bytes:
    column: Cards = [("TFIELDS", 1), ("TTYPE1", "'COMPRESSED_DATA'"), ("TFORM1", "'1PB(10)'")]
    packed: Cards = [("ZIMAGE", "T"), ("ZBITPIX", -32), ("ZNAXIS", 2), ("ZNAXIS1", n), ("ZNAXIS2", n)]
    tiles: Cards = [("ZTILE1", tile), ("ZTILE2", tile), ("ZCMPTYPE", "'RICE_1'")]
    return EMPTY + table(1, 8, [*column, *packed, *tiles, *SKY]) + struct.pack(">ii", 100, 0) + b"\xff" * 2872


FITS = {
    # The first two kept astropy busy for ever.
    "1e9 axes": (image([4, 4], n_axis=10**9), "NAXIS = 1e\\+09 in a header, expected 0 to 999"),
    "1e9 axes behind": (
        EMPTY + table(1, 8, []).replace(b"=                    2", b"=           1000000000", 1) + DATA,
        "NAXIS = 1e\\+09",
    ),
    "999 axes": (image([1] * 999), "2 to 8 axes, found 999"),
    "axes that are not there": (image([4, 4], n_axis=999), "cannot be read"),
    "negative": (image([4, 4], n_axis=-1), "NAXIS = -1"),
    "1e9 pixels a side": (image([10**9, 10**9]) + DATA, ""),
    "1e9 pixels": (image([10**9, 1]) + DATA, "GB of memory|cut off"),
    "no number": (
        image([4, 4]).replace(b"NAXIS1  =                    4", b"NAXIS1  =                  NaN"),
        "NAXIS1 = nan",
    ),
    **{f"bitpix {n}": (image([4, 4], n) + DATA, "") for n in (7, -1, 0, 10**9, "'x'", 1e300)},
    "no end": (BEGIN + b" " * (5 << 20), "a header of more than 4 MiB"),
    "zeros": (BEGIN + bytes(3 << 20), "without END"),
    "many cards": (image([4, 4], extra=[(f"K{i}", i) for i in range(60_000)]) + DATA, "more than 4 MiB"),
    "many axes of coordinates": (image([4, 4], extra=[("WCSAXES", 10**9)]) + DATA, "WCSAXES = 1e\\+09"),
    "distorted": (image([4, 4], extra=[("A_ORDER", 9), ("B_ORDER", 10**5)]) + DATA, "B_ORDER"),
    "lookup": (image([4, 4], extra=[("CPDIS1", "'LOOKUP'"), ("DP1", "'EXTVER: 1'")]) + DATA, "coordinates"),
    "groups": (image([0, 4], extra=[("GROUPS", "T"), ("GCOUNT", 10**12), ("PCOUNT", 10**12)]) + DATA, ""),
    "tiles": (compressed(4, 10**5), "cannot be read"),
    "large tiles": (compressed(10**9, 10**9), "GB of memory"),
    "beams": (
        image([4, 4, 2], extra=[*FREQ, ("CASAMBM", "T")]).replace(b"Jy/pixel", b"Jy/beam ")
        + DATA
        + table(10**9, 20, [("TFIELDS", 1), ("EXTNAME", "'BEAMS'"), *ONE_COLUMN]),
        "",
    ),
    "bomb": (gzip.compress(BEGIN + b" " * (64 << 20), 1), "a header of more than 4 MiB"),
    "cut gzip": (gzip.compress(image([4, 4]) + DATA)[:-20], "compressed, and damaged"),
    "bzip": (b"BZh91AY&SY", "compressed, but not by gzip"),
    "pickle": (pickle.dumps({"a": 1}), ""),
}


def test_images_that_mean_harm(tmp_path: Path) -> None:
    paths = []
    for i, (data, _) in enumerate(FITS.values()):
        paths.append(tmp_path / f"{i}.fits")
        paths[-1].write_bytes(data)
    os.mkfifo(tmp_path / "pipe")
    *said, pipe, zero, long = outcomes("fits", [*paths, tmp_path / "pipe", "/dev/zero", "x" * 300])
    for (name, (_, words)), line in zip(FITS.items(), said, strict=True):
        assert line != "read", name
        assert re.search(words, line), f"{name}: {line}"
    assert "a pipe or a device" in pipe
    assert "a pipe or a device" in zero
    assert "File name too long" in long


def test_small_files_that_unpack_to_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused as soon as they hold more than such data do, and at once where they hold no FITS file."""
    monkeypatch.setattr(fits_vetting, "PACKED_SPARE", 1 << 20)
    place = tmp_path / "a.fits.gz"
    place.write_bytes(gzip.compress(image([4000, 4000]) + bytes(64 << 20)))
    with pytest.raises(InputError, match="more than such data do"):
        fits_vetting.vet(place, 1 << 40)
    place.write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(InputError, match="the content is not a FITS file"):
        fits_vetting.vet(place, 1 << 40)
    place.write_bytes(gzip.compress(image([4, 4]) + DATA))
    assert not isinstance(fits_vetting.vet(place, 1 << 40), Path)


def posterior(path: Path) -> Path:
    rng = np.random.default_rng(1)
    Posterior(
        columns=(Column("a.I", "Jy"), Column("a.pa", "deg", period=180.0)),
        samples=rng.normal(size=(6, 2)),
        log_likelihood=np.zeros(6),
        log_prior=np.zeros(6),
        provenance=Provenance("emcee", 1),
        effective=np.full(2, 6.0),
    ).save(path)
    return path


def changed(path: Path, change: Callable[[h5py.Group], object]) -> Path:
    """The posterior at a path, changed by h5py."""
    with h5py.File(posterior(path), "a") as file:
        change(file["biro"])
    return path


def replaced(name: str, **how: Any) -> Callable[[h5py.Group], object]:
    def change(group: h5py.Group) -> None:
        del group[name]
        group.create_dataset(name, **how)

    return change


def linked(name: str, link: object) -> Callable[[h5py.Group], object]:
    def change(group: h5py.Group) -> None:
        del group[name]
        group[name] = link

    return change


def recorded(change: Callable[[dict[str, Any]], object] | bytes) -> Callable[[h5py.Group], object]:
    def write(group: h5py.Group) -> None:
        record = json.loads(group["record"][()].tobytes())
        data = change if isinstance(change, bytes) else json.dumps(change(record) or record).encode()
        replaced("record", data=np.frombuffer(data, np.uint8))(group)

    return write


def virtual(group: h5py.Group) -> None:
    layout = h5py.VirtualLayout((6, 2), "f8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (6, 2))
    del group["samples"]
    group.create_virtual_dataset("samples", layout)


def grouped(group: h5py.Group) -> None:
    del group["samples"]
    group.create_group("samples")


HDF5: dict[str, tuple[Callable[[h5py.Group], object], str]] = {
    "1e12 elements": (
        replaced("samples", shape=(10**12, 2), dtype="f8", chunks=(1000, 2)),
        "bytes, in a file",
    ),
    "zeros": (replaced("samples", data=np.zeros((10**6, 2)), compression="gzip"), "bytes, in a file of"),
    "a link outwards": (linked("samples", h5py.ExternalLink("/etc/passwd", "/x")), "link to elsewhere"),
    "a link in a ring": (linked("samples", h5py.SoftLink("/biro/samples")), "damaged"),
    "virtual": (virtual, "lies elsewhere"),
    "external": (replaced("samples", shape=(6, 2), dtype="f8", external=[("/etc/passwd", 0, 96)]), "lies"),
    "texts": (replaced("samples", data=["a", "b"], dtype=h5py.string_dtype()), "no array of numbers"),
    "bytes": (replaced("samples", data=np.void(b"\x80\x04")), "no array of numbers"),
    "nothing": (replaced("samples", data=h5py.Empty("f8")), "no array of numbers"),
    "a group": (grouped, "no array of numbers"),
    "not finite": (replaced("samples", data=np.full((6, 2), np.nan)), "finite"),
    "another shape": (replaced("samples", data=np.zeros((6, 3))), "shape"),
    "no record": (lambda group: group.pop("record", None), "damaged"),
    "deep record": (recorded(b"[" * 100_000), "damaged"),
    "no JSON": (recorded(pickle.dumps([1])), "damaged"),
    "a list": (recorded(lambda record: [1]), "damaged"),
    "columns": (recorded(lambda record: record.update(columns=[{"name": 1}] * 2)), "damaged"),
    "a period": (recorded(lambda record: record["columns"][0].update(period="x")), "damaged"),
    "walkers": (recorded(lambda record: record.update(n_walker=0)), "walkers"),
    "digits": (recorded(lambda record: record.update(n_walker=1.5)), "damaged"),
    "diagnostics": (recorded(lambda record: record.update(diagnostics={"a": {}})), "damaged"),
    "evidence": (recorded(lambda record: record.update(log_evidence="x")), "damaged"),
    "a seed": (recorded(lambda record: record["provenance"].update(seed="x")), "damaged"),
    "more": (recorded(lambda record: record["provenance"].update(more=1)), "damaged"),
}


def test_posteriors_that_mean_harm(tmp_path: Path) -> None:
    paths = [changed(tmp_path / f"{i}.nc", change) for i, (change, _) in enumerate(HDF5.values())]
    whole = posterior(tmp_path / "whole.nc").read_bytes()
    for i, data in enumerate(
        [whole[:-100], whole[: len(whole) // 2], b"", pickle.dumps(Command(tmp_path / "ran"))]
    ):
        (tmp_path / f"cut{i}.nc").write_bytes(data)
        paths.append(tmp_path / f"cut{i}.nc")
    os.mkfifo(tmp_path / "pipe")
    said = outcomes("posterior", [*paths, tmp_path / "pipe", tmp_path / "whole.nc"])
    for (name, (_, words)), line in zip(HDF5.items(), said, strict=False):
        assert line != "read", name
        assert words in line, f"{name}: {line}"
    assert said[-1] == "read"
    assert "read" not in said[len(HDF5) : -1]
    assert not (tmp_path / "ran").exists()


def test_a_file_that_the_hdf5_library_never_ends_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A length in its heap of texts wraps around 2^64 to 0, and the library goes round and round."""
    data = bytearray(posterior(tmp_path / "a.nc").read_bytes())
    at = data.index(b"GCOL") + 24
    data[at : at + 8] = struct.pack("<Q", 2**64 - 16)
    (tmp_path / "a.nc").write_bytes(data)
    monkeypatch.setattr(hdf5, "TIME_LIMIT", 5.0)
    with pytest.raises(BiroError, match=r"damaged \((the HDF5 library did not finish within 5 s|.*)\)"):
        Posterior.load(tmp_path / "a.nc")


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8))
def test_posteriors_with_changed_bytes(tmp_path: Path, changes: list[tuple[float, int]]) -> None:
    path = tmp_path / "a.nc"
    if not path.exists():
        posterior(path)
    data = bytearray(path.read_bytes())
    for place, value in changes:
        data[int(place * len(data))] = value
    (tmp_path / "b.nc").write_bytes(data)
    gives_or_refuses(lambda: str(Posterior.load(tmp_path / "b.nc").summary()))


RECORD = {"format": 1, "run_id": "r", "settings": {"seed": 1}, "resumed": [], "facts": {}, "finished": None}
RECORDS = {
    "deep": ("[" * 100_000, "cannot be read"),
    "a list": ("[]", "format"),
    "settings": (json.dumps(RECORD | {"settings": 3}), "damaged"),
    "resumed": (json.dumps(RECORD | {"resumed": {}}), "damaged"),
    "facts": (json.dumps(RECORD | {"facts": [1]}), "damaged"),
    "likelihood": (json.dumps(RECORD | {"facts": {"likelihood": "x"}}), "damaged"),
    "digits": ('{"format": ' + "9" * 5000 + "}", "cannot be read"),
    "not a number": ('{"format": NaN}', "format"),
    "another text": ("\x80\x04", "cannot be read|format"),
    "large": (" " * (17 << 20), "larger than 16 MiB"),
}


def test_records_that_mean_harm(tmp_path: Path) -> None:
    for i, (text, _) in enumerate(RECORDS.values()):
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "run.json").write_text(text, encoding="latin-1")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "run.json")
    *said, pipe = outcomes("record", [*(tmp_path / str(i) for i in range(len(RECORDS))), tmp_path / "pipe"])
    for (name, (_, words)), line in zip(RECORDS.items(), said, strict=True):
        assert any(word in line for word in words.split("|")), f"{name}: {line}"
    assert "not a file" in pipe


@pytest.mark.parametrize(
    "name", ["lock", "log.txt", "run.json", "model.toml", CHAIN, "draws.npz", "posterior.nc"]
)
def test_run_directories_with_links_and_pipes(tmp_path: Path, name: str) -> None:
    """A link would have a file elsewhere overwritten, a pipe is waited for without end."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for i, make in enumerate((lambda path: path.symlink_to(precious), os.mkfifo)):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps(RECORD))
        (folder / name).unlink(missing_ok=True)
        make(folder / name)
        with pytest.raises(RunError, match=f"{name} is no plain file"):
            RunDirectory(folder, {"seed": 1})
    assert precious.read_text() == "precious"


def draws(path: Path, **arrays: Any) -> bytes:
    plain = {"z": np.zeros((2, 3, 2)), "middle": np.zeros(2), "factor": np.eye(2), "last": np.zeros((2, 2))}
    plain |= {"form": np.zeros(2, np.int64), "partner": np.zeros(2, np.int64), "open": np.zeros(0, np.int64)}
    plain |= {"walls": np.zeros((4, 0))}
    plain |= {"stats": np.zeros((2, 3), STATS), "scale": np.ones(2), "n_gradient": np.array(9)}
    buffer = io.BytesIO()
    save = np.savez_compressed if arrays.pop("compressed", False) else np.savez
    save(buffer, **{**plain, "n_tuned": 3, "run_id": "run", **arrays}, allow_pickle=True)  # type: ignore[arg-type]
    return buffer.getvalue()


def npz(head: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in ("z", "stats", "middle", "factor", "last", "scale", "n_tuned", "n_gradient", "run_id"):
            file.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head)
    return buffer.getvalue()


def test_draws_that_mean_harm(tmp_path: Path) -> None:
    shape = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%s), }\n"
    cases = {
        "pickle": draws(tmp_path, z=np.array([Command(tmp_path / "ran")], dtype=object)),
        "a pickle alone": pickle.dumps(Command(tmp_path / "ran")),
        "zeros": draws(tmp_path, z=np.zeros((2, 10**6, 2)), compressed=True),
        "1e12": npz(shape % b"1000000000000,"),
        "command": npz(shape % b"__import__('os').system('touch ran'),"),
        "deep": npz(b"(" * 9000),
        "a name": draws(tmp_path).replace(b"z.npy", b"y.npy", 1),  # an error of many lines
        "no zip": b"PK\x03\x04" + bytes(100),
        "an array": b"\x93NUMPY\x01\x00v\x00" + (shape % b"3,").ljust(118) + bytes(24),
        "texts": draws(tmp_path, n_tuned="x"),
        "statistics of text": draws(tmp_path, stats=np.full((2, 3), "x")),
        "statistics of others": draws(tmp_path, stats=np.zeros((2, 10), STATS)),
        "another run": draws(tmp_path, run_id="other"),
        "nothing": b"",
    }
    for i, data in enumerate(cases.values()):
        (tmp_path / f"{i}.npz").write_bytes(data)
    for name, said in zip(
        cases, outcomes("draws", [tmp_path / f"{i}.npz" for i in range(len(cases))]), strict=True
    ):
        assert "cannot be read" in said or "another run" in said, f"{name}: {said}"
    assert not (tmp_path / "ran").exists()
    (tmp_path / "fine.npz").write_bytes(draws(tmp_path))
    assert NutsDrawsFile(tmp_path / "fine.npz", "run").read(2, 2) is not None


def test_chains_and_checkpoints_that_mean_harm(tmp_path: Path) -> None:
    """A checkpoint is a pickle, and is not looked into unless this user's key signed it for this run."""
    about = {"run_id": "run", "n_walker": 4, "n_param": 2, "centre": [0, 0]}
    pickled = pickle.dumps(Command(tmp_path / "ran"))
    chains = [
        json.dumps(about | changes).encode() + b"\n" + (10**18).to_bytes(8, "little") + bytes(100)
        for changes in (
            *({"n_walker": 10**12}, {"n_walker": -1}, {"n_param": 10**30, "centre": []}, {"centre": "x"}),
            *({"n_walker": "x"}, {"run_id": []}, {"centre": [[0]]}),
        )
    ]
    files = [b"biro chain 1\n" + chain for chain in chains] + [
        b"biro chain 1\n" + b"[" * 10**5 + b"\n",
        pickled,
    ]
    for i, data in enumerate(files):
        (tmp_path / f"{i}.bin").write_bytes(data)
    said = outcomes("chain", [tmp_path / f"{i}.bin" for i in range(len(files))])
    assert all("cannot be read" in line or "another run" in line for line in said), said
    assert ChainFile(tmp_path / "none.bin", "run").restore() is None
    signed = b"biro signed checkpoint 1\n" + bytes(32) + pickled
    for name, data in (("plain", pickled), ("signed", signed)):
        (tmp_path / name).write_bytes(data)
    assert all(
        "does not load it" in line
        for line in outcomes("checkpoint", [tmp_path / "plain", tmp_path / "signed"])
    )
    assert not (tmp_path / "ran").exists()


def test_antenna_files_that_mean_harm(tmp_path: Path) -> None:
    texts = [
        "1e999 0 0 12 A\n",
        "nan nan nan nan A\n",
        "0 0 0 12 A\n" * 10_000,
        "# coordsys =\n0 0 0 12 A\n",
        "# centre = 1e999 x y\n# coordsys = local\n0 0 0 12 A\n",
        '"' * 100_000,
        "\x00",
        "a," * 100_000,
        "# coordsys = local\n# centre = 0 0 " + "9" * 400 + "\n0 0 0 12 A\n1 0 0 12 B\n",
    ]
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.csv").write_text(text)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x80")
    paths = [*(tmp_path / f"{i}.csv" for i in range(len(texts))), tmp_path / "binary.csv", tmp_path]
    assert "read" not in outcomes("antennas", paths)
