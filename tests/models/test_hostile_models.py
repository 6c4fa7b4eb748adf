"""Model files and component lists that mean harm: found by fuzzing (tests/fuzz.py) and by thinking."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hostile import outcomes

SOURCE = '[[source]]\nname = "a"\neast = "0 deg"\nnorth = "0 deg"\n'
LIST = "Format = Name, Ra, Dec, I\n"
TIES = "".join(
    f'[[source]]\nname = "s{i}"\nra = "1 deg"\ndec = "2 deg"\nI.tie = "s{i + 1}.I"\n' for i in range(500)
)

CASCADE = "".join(
    f'[[source]]\nname = "s{i}"\neast = {{ prior = "normal", mean = 0, sd = "1 mas" }}\n'
    f'north = "s{i}.east + s{i + 1}.north"\nI = "1 Jy"\n'
    for i in range(3000)
)
LAST = '[[source]]\nname = "s3000"\neast = "0 mas"\nnorth = "0 mas"\nI = "1 Jy"\n'
DOUBLES = "".join(SOURCE.replace('"a"', f'"s{i}"') + f'I = "s{i + 1}.I * 8"\n' for i in range(400))

TOML = {
    # Each of these took minutes, any amount of memory, or ended in another exception than a BiroError.
    "dotted": (".".join("a" * 100_000) + " = 1", "a key of more than 32 parts"),
    "dotted quotes": ("x = {" + ' . "a b"' * 50_000 + " = 1}", ""),
    "deep header": ("[" + ".".join("a" * 100_000) + "]", "a key of more than 32 parts"),
    "hexadecimal name": ("[[source]]\nname = 0x" + "f" * 5000, "an integer of 20000 bits"),
    "hexadecimal flux": (SOURCE + "I = 0x" + "f" * 5000, "an integer of 20000 bits"),
    "octal low": (SOURCE + 'I = { prior = "uniform", low = 0o' + "7" * 9000 + ", high = 3 }", "27000 bits"),
    "deep lists": ("a = " + "[" * 100_000, "nested too deeply"),
    "deep tables": ("a = " + "{a=" * 100_000, "nested too deeply"),
    "digits": (SOURCE + "I = " + "9" * 100_000, "not valid TOML"),
    "overflow": (SOURCE + 'I = "1e999 Jy"', "must be finite"),
    "not a number": (SOURCE + 'I = "1 Jy"\nspectral_index = nan\nref_freq = "1 GHz"', "finite"),
    "a date": (SOURCE + "I = 1979-05-27", "found datetime.date"),
    "long number": (SOURCE + f'I = "{"9" * 100_000} Jy"', "I: "),
    "long unit": (SOURCE + f'I = "1 {"Jy*" * 50_000}Jy"', "unknown unit"),
    "long name": (f'[[source]]\nname = "{"a" * 1_000_000}"\n', "source"),
    "long key": (SOURCE + "x" * 1_000_000 + " = 1", "unknown key"),
    "long list": (SOURCE + "I = [" + '"1 Jy",' * 120_000 + "]", "1 to 100000 elements"),
    "many headers": ("[[source]]\n" * 50_000, "'name' is missing"),
    "command": (SOURCE + "I = \"__import__('os').system('touch ran')\"", "I: "),
    "chain of ties": (TIES, "no quantity is called so"),
    "sums of sums": (CASCADE + LAST, "ties add up more than 1000000 multiples of parameters"),
    "ever larger ties": (DOUBLES + LAST.replace("s3000", "s400"), "the numbers of its ties are too large"),
    "parentheses": (SOURCE + 'I = "' + "(" * 100_000 + 'b.I"', "a tie has 2000 characters at most"),
    "deep parentheses": (SOURCE + 'I = "' + "(" * 1000 + 'b.I"', "parentheses go deeper than 30"),
    "signs": (SOURCE + 'I = "' + "- " * 900 + 'b.I"', "expected a number or a quantity"),
    "tied command": (SOURCE + "I = \"b.I * __import__('os').system('touch ran')\"", "there are no functions"),
    "pickle": ("cos\nsystem\n(S'touch ran'\ntR.", "not valid TOML"),
}
LISTS = {
    "spaces": ("# " + " " * 50_000 + "(", "no sources"),  # a regular expression that took n^3 steps
    "one name": (LIST + "a,1:2:3,4.5.6,1\n" * 5000, "read"),  # n^2
    "brackets": (LIST + "[" * 100_000, "do not match"),
    "commas": (LIST + "a" + "," * 1_000_000, "ra: "),
    "columns": ("Format = " + "Category," * 100_000 + "Ra,Dec,I\n", "no sources"),
    "digits": (LIST + f"a,{'1' * 100_000}:2:3,4.5.6,1", "ra: "),
    "overflow": (LIST + "a,1:2:3,4.5.6,1e999", "i: expected a finite number"),
    "hexadecimal": (LIST + "a,1:2:3,4.5.6,0x10", "i: expected a finite number"),
    "command": (LIST + "a,1:2:3,4.5.6,__import__('os').system('touch ran')", "i: "),
    "terms": (
        "Format = Ra, Dec, I, SpectralIndex, ReferenceFrequency\n1:2:3,4.5.6,1,[" + "1," * 5000 + "1],1e8",
        "",
    ),
}
TIGGER = {
    "columns": ("#format: " + "x " * 200_000, "no column for the right ascension"),
    "digits": ("#format: ra_d dec_d i\n1 2 " + "9" * 400, "i: expected a finite number"),
    "overflow": ("#format: ra_d dec_d i spi freq0\n1 2 3 1e308 1e-300\n", ""),
    "many": ("#format: name ra_d dec_d i\n" + "a 1 2 3\n" * 5000, "read"),
}


@pytest.mark.parametrize(("reader", "cases"), [("toml", TOML), ("bbs", LISTS), ("tigger", TIGGER)])
def test_texts_that_mean_harm(reader: str, cases: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    paths = []
    for name, (text, _) in cases.items():
        paths.append(tmp_path / (name.replace(" ", "_") + (".toml" if reader == "toml" else ".txt")))
        paths[-1].write_text(text)
    for (name, (_, words)), said in zip(cases.items(), outcomes(reader, paths), strict=True):
        assert words in said, f"{name}: {said}"
    assert not (tmp_path / "ran").exists()
    assert not Path("ran").exists()


@pytest.mark.parametrize("reader", ["toml", "sky"])
def test_paths_that_mean_harm(reader: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    odd = tmp_path / os.fsdecode(b"line\nbreak \xff.toml")
    odd.write_bytes(b"\x80")
    paths = [pipe, "/dev/zero", odd, tmp_path / ("x" * 300), tmp_path / "none\x00", "/proc/self/mem"]
    said = outcomes(reader, paths)
    assert all("pipe or a device" in line for line in said[:2])
    assert "read" not in said
