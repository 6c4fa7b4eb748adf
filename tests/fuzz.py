"""Feeds every reader of files with mutated ones, guided by coverage; run by hand (see CONTRIBUTING.md).

    pip install atheris
    nice python tests/fuzz.py toml --seconds 600

A reader may give something or raise a `BiroError`. Anything else, and whatever takes long or much memory, is
printed once with its trace, and its file is kept in the folder of findings; make a test of it in
tests/biro/test_hostile_files.py. A crash of the interpreter ends the program; libFuzzer then keeps the file.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import atheris

sys.path.pop(0)  # this folder, whose tests/biro is not the package
with atheris.instrument_imports(include=["biro", "tomllib", "zipfile", "numpy.lib"]):
    import biro
    from biro.errors import BiroError

    # Not by its name, which would need this folder on the path.
    _SPEC = importlib.util.spec_from_file_location(
        "fuzz_readers", Path(__file__).parent / "biro" / "fuzz_readers.py"
    )
    assert _SPEC is not None
    assert _SPEC.loader is not None
    fuzz_readers = importlib.util.module_from_spec(_SPEC)
    _SPEC.loader.exec_module(fuzz_readers)

READERS, WORDS = fuzz_readers.READERS, fuzz_readers.WORDS
MEMORY = 6 << 30
"""Bytes of address space; numba and its libraries take two thirds of a gigabyte of them."""
SLOW = 5.0
BINARY = ("posterior", "chain", "draws", "checkpoint")


class Target:
    """One reader, and what was found out about it."""

    def __init__(self, name: str, findings: Path) -> None:
        self.file, self.read, _ = READERS[name]
        self.findings = findings
        self.seen: set[str] = set()
        self.count = 0
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))

    def __call__(self, data: bytes) -> None:
        self.count += 1
        path = self.folder / self.file
        path.write_bytes(data)
        begin = time.monotonic()
        try:
            self.read(path)
        except BiroError as error:
            if "\n" in str(error) or len(str(error)) > 1500:
                self._note("long or broken line", data, str(error)[:300])
        except (Exception, RecursionError) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            self._note(f"{type(error).__name__} {last.filename}:{last.lineno}", data, traceback.format_exc())
        if time.monotonic() - begin > SLOW:
            self._note(f"slow, {time.monotonic() - begin:.0f} s", data, "")
        for left in self.folder.iterdir():
            left.unlink()

    def mutate(self, data: bytes, max_size: int, seed: int) -> bytes:
        """Half of the time put a word or an odd number in the place of another, else what libFuzzer does.

        Cards of FITS keep their length.
        """
        rng = random.Random(seed)
        if rng.random() < 0.5:
            return atheris.Mutate(data, max_size)
        data = fuzz_readers.with_other_words(data, rng, keep_lengths=self.file.endswith(".fits"))
        return data[:max_size]

    def _note(self, what: str, data: bytes, text: str) -> None:
        if what in self.seen:
            return
        self.seen.add(what)
        place = self.findings / f"finding{len(self.seen)}"
        place.write_bytes(data)
        print(f"FOUND {what}: {place} ({len(data)} bytes)\n{text}", flush=True)


def main() -> None:
    """Fuzz one reader for a while."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--findings", type=Path, default=None)
    chosen = parser.parse_args()
    findings = chosen.findings or Path(tempfile.mkdtemp(prefix=f"biro-fuzz-{chosen.reader}-"))
    corpus = findings / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(READERS[chosen.reader][2]()):
        (corpus / f"seed{i}").write_bytes(seed)
    words = findings / "words"
    words.write_text("".join('"' + word.replace('"', '\\"') + '"\n' for word in WORDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.chdir(findings)
    print(f"biro {biro.__version__}, {chosen.reader}: findings in {findings}", flush=True)
    options = [f"-max_total_time={chosen.seconds}", "-rss_limit_mb=0", "-timeout=60", f"-dict={words}"]
    target = Target(chosen.reader, findings)
    mutators: dict[str, Any] = {} if chosen.reader in BINARY else {"custom_mutator": target.mutate}
    atheris.Setup([sys.argv[0], *options, "-max_len=20000", str(corpus)], target, **mutators)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
