"""biro imports and fits on a system without what is particular to Linux, and without casacore.

The system is this one, with `sys.platform` of macOS, without /proc, and without the functions and constants
of Linux alone; other packages are imported before, because their compiled parts are those of Linux.
"""

import textwrap
from pathlib import Path

from commands import python

PROGRAM = """
import builtins, fcntl, importlib, importlib.abc, os, pkgutil, signal, sys
import astropy.io.fits, astropy.time, astropy.units, dynesty, emcee, h5py, matplotlib.pyplot, numba, pydantic
import scipy.optimize, scipy.stats, tqdm.auto, typer

sys.platform = "darwin"
for module, names in ((os, ("sched_getaffinity", "pipe2", "posix_fadvise", "memfd_create")),
                      (fcntl, ("F_SETPIPE_SZ", "F_GETPIPE_SZ")), (signal, ("sigtimedwait", "SIGRTMIN"))):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
real = builtins.open
def opened(file, *rest, **more):
    if str(file).startswith("/proc/"):
        raise FileNotFoundError(2, "No such file or directory", str(file))
    return real(file, *rest, **more)
builtins.open = opened

class NoCasacore(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "casacore":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoCasacore())
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "casacore" else find_spec(name, *rest)

import biro, rime_kernels
for package in (rime_kernels, biro):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if "__main__" not in module.name and ".measurement_set.child" not in module.name:
            importlib.import_module(module.name)
from biro.errors import MeasurementSetError
from biro.files import hdf5_child
from biro.files.memory import free_memory
from biro.distributed.tasks.cores import n_core
assert n_core() >= 1 and free_memory() > 0
hdf5_child._limit_memory(1 << 20)
os.mkdir("obs.ms")
real("obs.ms/table.dat", "w").close()
real("obs.ms/table.info", "w").write("Type = Measurement Set\\n")
try:
    biro.read_ms("obs.ms")
except MeasurementSetError as error:
    assert "casacore, which is not installed" in str(error), error
else:
    raise AssertionError("a Measurement Set was read without casacore")

from biro.models import PointSource, SkyModel, Uniform
from biro.simulation import Channels, Track
truth = SkyModel([PointSource("a", east="0 arcsec", north="0 arcsec", I="1 Jy")])
observation = biro.simulate("KAT-7", truth, phase_centre="05h00m00s -45d00m00s", noise=0.1, seed=1,
                            times=Track("2026-03-01", 1200.0, 600.0), channels=Channels(1.4e9, 1e6))
sky = SkyModel([PointSource("a", east="0 arcsec", north="0 arcsec", I=Uniform(0, 3, "Jy"))])
likelihood = biro.Likelihood(observation, sky, backend="cpu")
posterior = biro.sample(likelihood, "none", run_dir="run", seed=1, progress=False)
assert abs(posterior["a.I"].mean() - 1.0) < 0.1, posterior.summary()
assert len(biro.Posterior.load("run/posterior.nc").samples) == len(posterior.samples)
"""


def test_nothing_of_linux_alone_is_needed(tmp_path: Path) -> None:
    """1 Jy with a noise of 0.1 Jy in 84 visibilities: 0.1 Jy is nine times the error, 0.1/sqrt(84)."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PROGRAM))
    done = python(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
