"""Model files: what they say, how they read back, and what their errors name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from biro.models import (
    AiryBeam,
    Bounds,
    Condition,
    Cos3Beam,
    Cosine,
    Fixed,
    Frozen,
    GaussianBeam,
    GaussianSource,
    HalfNormal,
    LogUniform,
    ModelError,
    Noise,
    Normal,
    Order,
    PartitionView,
    Pointing,
    PointSource,
    Sine,
    SkyModel,
    Tie,
    Triangular,
    TruncatedNormal,
    Uniform,
    read_model,
    read_sky,
    write_model,
)
from biro.models.files.toml import from_toml

MakeView = Callable[..., PartitionView]

JET = """
[sky]
centre = "12h29m06.7s +02d03m08.6s"
ref_freq = "8.085 GHz"

[[source]]
name = "core"
east = "0 arcsec"
north = "0 arcsec"
I = { prior = "log-uniform", low = "0.1 Jy", high = "50 Jy" }

[[source]]
name = "jet"
type = "gaussian"
east = { prior = "normal", mean = -13.9, sd = 2, unit = "arcsec" }
north = { prior = "uniform", low = "-20 arcsec", high = "-10 arcsec" }
I = { prior = "log-uniform", low = "0.1 Jy", high = "50 Jy" }
emaj = { prior = "half-normal", sd = "5 arcsec" }
ratio = { prior = "uniform", low = 0, high = 1 }
pa = { prior = "uniform", low = "0 deg", high = "180 deg" }
spectral_index = -0.7

[noise]
factor = { prior = "log-uniform", low = 0.01, high = 100 }
per = "all"

[[constraint]]
order = ["core.I", "jet.I"]
"""


def test_a_file_and_python_say_the_same(tmp_path: Path, view: MakeView) -> None:
    path = tmp_path / "jet.toml"
    path.write_text(JET)
    flux = LogUniform("0.1 Jy", "50 Jy")
    same = SkyModel(
        [
            PointSource("core", east="0 arcsec", north="0 arcsec", I=flux),
            GaussianSource(
                "jet",
                east=Normal(-13.9, 2, "arcsec"),
                north=Uniform(-20, -10, "arcsec"),
                I=flux,
                emaj=HalfNormal("5 arcsec"),
                ratio=Uniform(0, 1),
                pa=Uniform("0 deg", "180 deg"),
                spectral_index=-0.7,
            ),
        ],
        centre="12:29:06.7 +02:03:08.6",
        ref_freq="8.085 GHz",
        noise=Noise(LogUniform(0.01, 100), per="all"),
        constraints=[Order(["core.I", "jet.I"])],
    )
    model = read_model(path)
    assert model == same
    assert read_sky(path) == same
    bound = model.bind([view("a/x"), view("a/y")])
    assert bound.parameter_names == (
        "core.I",
        "jet.east",
        "jet.north",
        "jet.I",
        "jet.emaj",
        "jet.ratio",
        "jet.pa",
        "noise.factor",
    )
    write_model(model, tmp_path / "again.toml")
    assert read_model(tmp_path / "again.toml") == same
    assert from_toml(bound.to_toml()) == same


# What may stand for a quantity, by kind.
def numbers(low: float = -1e6, high: float = 1e6) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False, width=64)


@st.composite
def quantities(draw: st.DrawFn, units: tuple[str, ...], positive: bool = False) -> object:
    unit = draw(st.sampled_from(units))
    low = draw(numbers(1e-6 if positive else -1e3, 1e3))
    high = low + draw(numbers(1e-3, 1e3))
    if high <= low:
        return Fixed(low, unit)
    priors = [
        Uniform(low, high, unit),
        Triangular(low, low, high, unit),
        TruncatedNormal(low, high - low, low, unit=unit),
    ]
    if not positive:
        priors.append(Normal(low, high - low, unit))
    if low > 1e-40:  # lower ends of other units are refused
        priors.append(LogUniform(low, high, unit))
    return draw(st.sampled_from([Fixed(low, unit), *priors]))


ANGLES = ("deg", "arcsec", "mas", "rad")
FLUXES = ("Jy", "mJy")
NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,8}", fullmatch=True).filter(
    lambda name: name not in ("noise", "beam", "pointing")
)


@st.composite
def sources(draw: st.DrawFn, name: str) -> PointSource | GaussianSource:
    optional: dict[str, object] = {}
    if draw(st.booleans()):
        optional["Q"] = draw(quantities(FLUXES))
        optional["U"] = [draw(quantities(FLUXES)) for _ in range(3)]
    else:
        optional["pol_fraction"] = draw(numbers(0, 1))
        optional["pol_angle"] = draw(st.sampled_from([Sine(), Cosine(), Fixed(3.0, "deg")]))
    form = draw(st.sampled_from(["spectral_index", "log10_spectrum", "polynomial", None]))
    if form:
        terms = [draw(quantities(("",))) for _ in range(draw(st.integers(1, 3)))]
        optional[form] = draw(st.sampled_from([terms, {"I": terms, "V": terms[:1]}]))
        optional["ref_freq"] = Fixed(draw(numbers(1, 1e11)), "MHz")
    place = {"east": draw(quantities(("arcsec", "mas"))), "north": draw(quantities(("arcsec",)))}
    if draw(st.booleans()):
        place = {"ra": draw(quantities(("deg", "hourangle"))), "dec": Fixed(draw(numbers(-90, 90)), "deg")}
    given = {"I": draw(quantities(FLUXES)), **place, **optional}
    if draw(st.booleans()):
        return PointSource(name, **given)
    emaj = draw(quantities(ANGLES, positive=True))
    return GaussianSource(name, **given, emaj=emaj, ratio=Uniform(0, 1), pa=draw(quantities(("deg", "rad"))))


@st.composite
def models(draw: st.DrawFn) -> SkyModel:
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    made = [draw(sources(name)) for name in names]
    made.append(PointSource("tied", east=Tie("tied.north"), north="1 mas", I=Tie(f"{names[0]}.I")))
    beam = draw(
        st.sampled_from([None, Cos3Beam(), AiryBeam("25 m"), GaussianBeam(Uniform(1, 2, "deg"), "1 GHz")])
    )
    pointing = Pointing(
        east=["1 deg", Normal(0, 1, "deg")], antenna={'a "b"\n': {"north": "1 deg"}}, antennas=["x"]
    )
    return SkyModel(
        made,
        centre=draw(st.sampled_from([None, (1.0, -0.1), "12:29:06.7 +02:03:08.6"])),
        ref_freq=draw(st.sampled_from([None, "1.4 GHz"])),
        beam=beam,
        pointing=pointing if beam else None,
        noise=draw(st.sampled_from([Noise(), Noise(1), Noise(Uniform(0, 3), per="spw")])),
        constraints=[Order([f"{names[0]}.I", "tied.east"]), Bounds("tied.I", high="3 mJy")],
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models().filter(lambda model: "tied" not in [s.name for s in model.sources[:-1]]))
def test_writing_and_reading_is_the_identity(model: SkyModel) -> None:
    assert from_toml(model.to_toml()) == model


def test_what_only_python_can_say_is_not_written(tmp_path: Path, view: MakeView) -> None:
    source = PointSource("a", east="0 deg", north="0 deg", I=Frozen(stats.beta(2, 3), "Jy"))
    for model in (
        SkyModel([source]),
        SkyModel([PointSource("a", east="0 deg", north="0 deg", I="1 Jy")], constraints=[Condition(len)]),
    ):
        with pytest.raises(ModelError, match="Python only"):
            write_model(model, tmp_path / "x.toml")
    text = SkyModel([source], constraints=[lambda p: p["a.I"] > 0.1]).bind([view()]).to_toml()
    assert "# I = (Frozen(scipy.stats.beta(2.0, 3.0), unit='Jy'),)" in text
    assert "# [[constraint]] Condition(" in text


SOURCE = '[[source]]\nname = "core"\neast = "0 deg"\nnorth = "0 deg"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no sources"),
        ("[[source]]", "source 1: 'name' is missing"),
        ('[[source]]\nname = "a b"\nI = "1 Jy"\neast = "0 deg"\nnorth = "0 deg"', "a name has letters"),
        (SOURCE, "source 'core': 'I' is missing"),
        (SOURCE + "I = 3", "source 'core': I: 3 has no unit; expected a flux density, for example '3 Jy'"),
        (SOURCE + 'I = "3"', "3 has no unit"),
        (SOURCE + 'I = "3 Jyy"', "I: unknown unit 'Jyy' in '3 Jyy' (did you mean 'Jy'?)"),
        (SOURCE + 'I = "3 deg"', "I: unit 'deg' is not a flux density"),
        (SOURCE + "I = true", "expected a number"),
        (SOURCE + 'I = "nan Jy"', "I: "),
        (SOURCE + "I = nan", "I: expected a finite number"),
        (SOURCE + 'I = "1e999 Jy"', "I: must be finite"),
        (SOURCE + 'I = "1 Jy"\nemajj = 3', "unknown key 'emajj'"),
        (SOURCE + 'I = "1 Jy"\nspectralindex = 3', "did you mean 'spectral_index'?"),
        (SOURCE + 'I = "1 Jy"\nfwhm = "3 deg"', 'a point has no shape; write type = "gaussian"'),
        (SOURCE + 'I = "1 Jy"\ntype = "gauss"', "found 'gauss' (did you mean 'gaussian'"),
        (SOURCE + 'I = "1 Jy"\nra = "1 deg"', "a position is ra and dec, or east and north"),
        (SOURCE + 'I = "1 Jy"\npol_fraction = 0.1', "go together"),
        (
            SOURCE + 'I = "1 Jy"\npol_fraction = 1.1\npol_angle = "1 deg"',
            "pol_fraction: must lie within 0 .. 1",
        ),
        (SOURCE + 'I = "1 Jy"\nQ = "1 Jy"\npol_fraction = 0.1\npol_angle = "1 deg"', "given twice"),
        (SOURCE + 'I = "1 Jy"\nspectral_index = -1', "spectral_index needs a ref_freq"),
        (SOURCE + 'I = "1 Jy"\nspectral_index = { Q = 1 }\nref_freq = "1 GHz"', "needs I"),
        (SOURCE + 'I = "1 Jy"\nspectral_index = 1\npolynomial = 1\nref_freq = "1 GHz"', "one form"),
        (SOURCE + 'I = "1 Jy"\nref_freq = "0 GHz"', "ref_freq: must be positive"),
        (SOURCE + 'I = "other.I"', "core.I: tied to 'other.I', but no quantity is called so"),
        (SOURCE + 'I = "core.I"', "tied to itself"),
        (SOURCE + 'I = "core.est"', "did you mean 'core.east'?"),
        (SOURCE + 'I = "core.east"', "is a flux density and cannot be tied to 'core.east', an angle"),
        (
            SOURCE + 'I = { prior = "uniform", low = "2 Jy", high = "1 Jy" }',
            "I: uniform prior: needs low < high",
        ),
        (SOURCE + 'I = { prior = "unifrm" }', "did you mean 'uniform'?"),
        (SOURCE + 'I = { prior = "uniform", low = 0, hi = 1 }', "unknown key 'hi'"),
        (SOURCE + "I = { low = 0, high = 1 }", "expected a number such as"),
        (SOURCE + 'I = ["1 Jy", 2]', "element 1: 2 has no unit"),
        (SOURCE + 'I = ["1 Jy", "2 Jy"]\nQ = ["1 Jy", "2 Jy", "3 Jy"]', "different numbers of times"),
        (SOURCE + "I = []", "a list must have"),
        (SOURCE + 'I = "1 Jy"\n' + SOURCE + 'I = "1 Jy"', "another source has this name"),
        ("[sourc]", "unknown table 'sourc' (did you mean 'source'?)"),
        ("[source]\nname = 'a'", "with two brackets"),
        ("sky = 3", "expected a table [sky]"),
        ("[sky]\ncenter = 'x'", "unknown [sky] key 'center' (did you mean 'centre'?)"),
        ("[sky]\ncentre = 'x'\n" + SOURCE + 'I = "1 Jy"', "expected a direction"),
        ("[sky]\nref_freq = '-1 GHz'\n" + SOURCE + 'I = "1 Jy"', "ref_freq: must be a positive number"),
        (SOURCE + 'I = "1 Jy"\n[noise]\nper = "spws"', "did you mean 'spw'?"),
        (SOURCE + 'I = "1 Jy"\n[noise]\nfactr = 1', "noise: unknown key 'factr' (did you mean 'factor'?)"),
        (SOURCE + 'I = "1 Jy"\n[beam]\nkind = "cos"', "did you mean 'cos3'?"),
        (SOURCE + 'I = "1 Jy"\n[beam]\nkind = "airy"\ndiameter = "3 deg"', "not a length"),
        (SOURCE + 'I = "1 Jy"\n[beam]\nkind = "gaussian"\nfwhm = "1 deg"', "'ref_freq' is missing"),
        (SOURCE + 'I = "1 Jy"\n[pointing]\neast = "1 deg"', "no effect without a beam"),
        (SOURCE + 'I = "1 Jy"\n[[constraint]]\nordr = ["a", "b"]', "did you mean 'order'?"),
        ("[sky\n", "not valid TOML"),
        ("a = " + "[" * 5000, "not valid TOML"),
        ("a = " + "9" * 5000, ""),
    ],
)
def test_errors_name_file_source_key_and_cause(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600 + len(str(path))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ('emaj = "1 arcsec"\nemin = "2 arcsec"\npa = "0 deg"', "emaj must not be below emin"),
        ('emaj = "-1 arcsec"\nratio = 0.5\npa = "0 deg"', "core.emaj must be 0 arcsec or more"),
        ('emaj = "1 arcsec"\nratio = 1.5\npa = "0 deg"', "core.ratio must be within 0 .. 1"),
        ('emaj = "1 arcsec"\nemin = "1 arcsec"', "a shape is emaj, emin, pa"),
        ('fwhm = "1 arcsec"\npa = "1 deg"', "a shape is emaj, emin, pa"),
        ('fwhm = "-1 arcsec"', "core.fwhm must be 0 arcsec or more"),
        (
            'emaj = { prior = "uniform", low = "1 mas", high = "2 mas" }\nemin = "1 arcsec"\npa = "0 deg"',
            "below emin",
        ),
    ],
)
def test_impossible_shapes(shape: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(SOURCE + f'type = "gaussian"\nI = "1 Jy"\n{shape}\n')
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_what_the_data_forbid(view: MakeView) -> None:
    far = from_toml('[[source]]\nname = "a"\nra = "0 deg"\ndec = "-60 deg"\nI = "1 Jy"')
    with pytest.raises(
        ModelError, match="source 'a' lies below the horizon of the tangent plane of partition 'f/x'"
    ):
        far.bind([view("f/x", (np.pi, 0.5))])
    with pytest.raises(ModelError, match="at least one partition"):
        far.bind([])
    pointed = from_toml(
        '[[source]]\nname = "a"\neast = "0 deg"\nnorth = "0 deg"\nI = "1 Jy"\n[beam]\nkind = "cos3"\n'
        '[pointing]\nantennas = ["RT0"]\neast = "1 deg"'
    )
    with pytest.raises(ModelError, match="no antenna is called 'RT0'"):
        pointed.bind([view()])


@pytest.mark.parametrize("reader", [read_model, read_sky])
def test_paths_that_are_no_files(reader: Callable[[Path], SkyModel], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        reader(tmp_path / "none.toml")
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    with pytest.raises(ModelError, match="is a directory"):
        reader(folder)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ModelError, match="not a text file"):
        reader(binary)
    with pytest.raises(ModelError, match="cannot be written"):
        write_model(from_toml(SOURCE + 'I = "1 Jy"'), tmp_path / "no" / "where.toml")


def test_the_examples_of_the_documentation_are_one_model() -> None:
    text = (Path(__file__).parents[2] / "docs" / "model_files.md").read_text()
    toml = text.split("```toml\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    assert from_toml(toml) == names["sky"]


def toml_blocks() -> list[object]:
    """Each TOML example of the README and of the site that is a model, named by its file and line."""
    root, blocks = Path(__file__).parents[2], []
    pages = {*(root / "docs").rglob("*.md")}
    pages.remove(root / "docs" / "how_to" / "flag.md")  # has a strategy of flagging
    for path in [root / "README.md", *sorted(pages)]:
        for found in re.finditer(r"^```toml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
            line = path.read_text()[: found.start()].count("\n") + 1
            blocks.append(pytest.param(found[1], id=f"{path.stem}:{line}"))
    return blocks


def other(name: str) -> str:
    """A source that an example speaks of, and does not show."""
    return f"""
[[source]]
name = "{name}"
east = "1 mas"
north = "2 mas"
pm_east = "0 mas/yr"
I = {{ prior = "uniform", low = "0 Jy", high = "1 Jy" }}
"""


@pytest.mark.parametrize("text", toml_blocks())
def test_every_example_of_the_documentation_is_a_model(text: str) -> None:
    """As it stands, or after sources that it ties to or orders, or after one of any kind."""
    own = set(re.findall(r'^name = "(.*)"', text, re.MULTILINE))
    spoken_of = {name for name in ("core", "a", "b") if f'"{name}.' in text} - own
    sky = from_toml("".join(map(other, spoken_of or (() if own else ("any",)))) + text)
    assert from_toml(sky.to_toml()) == sky


def test_examples_are_found() -> None:
    """A change of their form must not leave the test above with nothing to see."""
    assert len(toml_blocks()) > 15


@pytest.mark.parametrize(
    "text", ["05h00m00s -45d00m00s", "12h29m06.7s +02d03m08.6s", "00h00m00s -00d00m00.01s"]
)
def test_a_centre_is_written_as_people_write_it(text: str) -> None:
    model = SkyModel([PointSource("a", east="0 mas", north="0 mas", I="1 Jy")], centre=text)
    written = model.to_toml()
    assert "rad" not in written
    assert re.search(r'centre = \["\d\dh\d\dm\d\d\.\d{3}s", "[+-]\d\dd\d\dm\d\d\.\d\ds"\]', written)
    assert from_toml(written).centre == model.centre


def test_any_centre_is_read_back_to_the_last_bit() -> None:
    rng = np.random.default_rng(2)
    for ra, dec in zip(rng.uniform(0, 2 * np.pi, 200), rng.uniform(-1.57, 1.57, 200), strict=True):
        model = SkyModel([PointSource("a", ra=f"{ra} rad", dec=f"{dec} rad", I="1 Jy")], centre=(ra, dec))
        assert from_toml(model.to_toml()).centre == (ra, dec)
