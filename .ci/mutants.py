"""Mutation testing: changes one operator or number at a time, and runs the nearest tests, which must fail.

    python .ci/mutants.py [SUBJECT ...] [--sample 40] [--seed 1]

mutants.toml lists the subjects: modules, the tests nearest to them, and the mutants that change no result. A
subject passes if its tests kill nine tenths of a sample of its mutants. The survivors are printed. Everything
runs in a copy of the commit, with the interpreter of the caller, which needs cosmic-ray beside the tests'
packages.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-o",
    "addopts=--import-mode=importlib",
    "-x",
    "-q",
    "-p",
    "no:cacheprovider",
]
# Numba's decorators change no result where functions run as Python; text has no operators.
LEFT_OUT = ("core/RemoveDecorator", "core/ExceptionReplacer")
LEAST_KILLED = 0.9


def main() -> int:
    known = tomllib.loads((ROOT / ".ci" / "mutants.toml").read_text())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subjects", nargs="*", default=[*known], metavar="SUBJECT", help=", ".join(known))
    parser.add_argument("--sample", type=int, default=40, help="mutants of each subject (default: 40)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "-q", str(ROOT), folder], check=True)
        os.chdir(folder)
        os.environ.update(PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1")
        os.environ.setdefault("BIRO_TEST_DATA", str(ROOT.parent / "shared" / "data"))
        passed = [judge(name, known[name], asked.sample, asked.seed) for name in asked.subjects]
    return 0 if all(passed) else 1


def judge(name: str, subject: dict[str, Any], n_sample: int, seed: int) -> bool:
    """Whether the tests of a subject kill enough of a sample of its mutants."""
    interpreted = {"NUMBA_DISABLE_JIT": "1"} if subject.get("interpreted") else {}
    command = shlex.join(
        ["env", *(f"{key}={value}" for key, value in interpreted.items()), *PYTEST, *subject["tests"]]
    )
    begun = time.monotonic()
    if subprocess.run(shlex.split(command), stdout=subprocess.DEVNULL).returncode:
        print(f"{name}: the tests fail without a mutant:\n  {command}")
        return False
    timeout = 20.0 + 5.0 * (time.monotonic() - begun)  # a mutant may compile again, or loop for ever
    mutants = list(worth_trying([Path(path) for path in subject["modules"]]))
    chosen = random.Random(seed).sample(mutants, min(n_sample, len(mutants)))
    n_survived = n_tried = 0
    for mutant in chosen:
        result = mutate_and_test([mutant], command, timeout)
        lines = (result.diff or "").splitlines()
        changed = " ".join(line[1:].strip() for line in lines if line[:1] == "+" and line[1:3] != "++")
        if not lines or changed in subject.get("equivalent", []):
            continue
        n_tried += 1
        if result.test_outcome == TestOutcome.SURVIVED:
            n_survived += 1
            print(f"  survived: {mutant.module_path}:{mutant.start_pos[0]}  {changed}", flush=True)
    n_killed = n_tried - n_survived
    print(f"{name}: {n_killed} of {n_tried} mutants killed; {len(mutants)} exist", flush=True)
    return n_killed >= LEAST_KILLED * n_tried


def worth_trying(modules: list[Path]) -> Iterator[MutationSpec]:
    """All mutants of some modules, without those of annotations, which no program evaluates."""
    with use_db(":memory:", WorkDB.Mode.create) as database:
        init(modules, database, {})
        found = [mutation for item in database.work_items for mutation in item.mutations]
    annotations = {path: set(lines_of_annotations(path)) for path in modules}
    for mutation in found:
        inside = any(
            begin <= mutation.start_pos and mutation.end_pos <= end
            for begin, end in annotations[mutation.module_path]
        )
        if not inside and mutation.operator_name not in LEFT_OUT:
            yield mutation


def lines_of_annotations(path: Path) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Begin and end of each annotation of a module, as line and column."""
    for node in ast.walk(ast.parse(path.read_text())):
        for field in ("annotation", "returns"):
            part = getattr(node, field, None)
            if isinstance(part, ast.expr):
                yield (part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0)


if __name__ == "__main__":
    sys.exit(main())
