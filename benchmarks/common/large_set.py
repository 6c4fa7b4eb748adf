"""A Measurement Set of MeerKAT of any size, and a model of it, for programs that measure memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SKY = """
[[source]]
name = "a"
type = "point"
east = "30 arcsec"
north = "-50 arcsec"
I = {flux}
{noise}
"""
FLUX = '{ prior = "uniform", low = 0, high = 2, unit = "Jy" }'
FIELD = (
    "--telescope MeerKAT --start 2026-03-01 --freq 1.3GHz --chan-width 1MHz --noise 100mJy --seed 1 "
    "--integration 8s --smearing off"
)


def made(folder: Path, name: str, size: str) -> tuple[Path, Path]:
    """A set, and a model of it; `size` are options of `biro simulate`."""
    sky, model, path = folder / "sky.toml", folder / "model.toml", folder / f"{name}.ms"
    sky.write_text(SKY.format(flux='"0.5 Jy"', noise="[noise]\nfactor = 1"))
    model.write_text(SKY.format(flux=FLUX, noise=""))
    words = [str(path), str(sky), *FIELD.split(), "--phase-centre", "05h00m00s -30d00m00s", *size.split()]
    subprocess.run([sys.executable, "-m", "biro", "simulate", *words], check=True, capture_output=True)
    return path, model


def status(name: str) -> int:
    """A size that Linux knows of this process, MiB: "VmHWM", the most that it had, or "RssAnon"."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) >> 10
