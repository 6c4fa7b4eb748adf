"""Strategies of flagging: those that come with biro, and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from biro.errors import InputError
from biro.flagging.strategy import Strategy, read_strategy
from rime_kernels.flagging.options import WaterfallOptions


def test_strategies_that_come_with_biro() -> None:
    """The first has the defaults; the others say what they change."""
    assert read_strategy("meerkat") == Strategy()
    assert read_strategy("wsrt").waterfalls == WaterfallOptions(
        smoothing_channels=5.0, n_chunk=1, rank_eta=0.2
    )
    assert read_strategy("long-baseline").waterfalls.n_sigma == 6.0


def test_the_example_of_the_documentation_is_a_strategy(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how_to" / "flag.md").read_text()
    file = tmp_path / "s.toml"
    file.write_text(page.split("```toml\n")[1].split("```")[0])
    strategy = read_strategy(file)
    assert (strategy.method, strategy.waterfalls.n_sigma, strategy.spectra.width) == ("waterfalls", 5.0, 13)
    assert [mask.low for mask in strategy.masks] == pytest.approx([1.525e9])


def test_a_strategy_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        'method = "spectra"\n[spectra]\nwidth = 9\nn_sigma = 8\n'
        '[[mask]]\nfreq = "1.1 GHz..1200 MHz"\nuv_range = "..1 km"\n'
    )
    strategy = read_strategy(file)
    assert (strategy.method, strategy.spectra.width, strategy.spectra.n_sigma) == ("spectra", 9, 8.0)
    (mask,) = strategy.masks
    assert (mask.low, mask.high) == pytest.approx((1.1e9, 1.2e9))
    assert mask.uv_range is not None
    assert mask.uv_range.high == 1000.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('method = "waterfall"', "method must be one of 'waterfalls', 'spectra'; got 'waterfall'"),
        ("[waterfalls]\nn_sigm = 3", r"unknown \[waterfalls\] key 'n_sigm' \(did you mean 'n_sigma'\?\)"),
        ("[waterfalls]\nn_sigma = true", r"\[waterfalls\] n_sigma must be a number, got True"),
        ("[waterfalls]\nn_chunk = 1.5", r"\[waterfalls\] n_chunk must be a whole number, got 1.5"),
        ("[waterfalls]\nextend_time = 2", "extend_time must be an odd number of samples, got 2"),
        ("waterfalls = 3", r"waterfalls must be a table \[waterfalls\]"),
        ("[mask]\nfreq = 3", r"mask must be tables \[\[mask\]\]"),
        ('[[mask]]\nuv_range = "1 km.."', "freq and uv_range must be text, got None"),
        ('[[mask]]\nfreq = "2 GHz..1 GHz"', "freq '2 GHz..1 GHz' is not understood"),
        ('[[mask]]\nfreq = "1 m..2 m"', "freq '1 m..2 m' is not understood"),
        ('[[mask]]\nfrq = "1 GHz..2 GHz"', r"unknown \[\[mask\]\] key 'frq'"),
        ("method = ", "not valid TOML"),
        ("\x00\xff", "not valid TOML"),
    ],
)
def test_a_file_that_is_no_strategy_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "s.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=message):
        read_strategy(file)


def test_a_name_that_is_no_strategy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"merkat: no such strategy or file \(did you mean 'meerkat'\?\); biro has"
    ):
        read_strategy("merkat")
    with pytest.raises(InputError, match="cannot be read"):
        read_strategy(tmp_path)
    with pytest.raises(InputError, match="must be a name or a path, got 3"):
        read_strategy(3)  # type: ignore[arg-type]
