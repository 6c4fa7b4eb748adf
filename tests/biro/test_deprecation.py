"""Earlier names work with a warning, for as long as CONTRIBUTING promises."""

import inspect
import re
import warnings
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from test_likelihood import FIXED_NOISE, ONE_SOURCE, observation, sky

import biro
import rime_kernels
from biro.deprecation import ALIASES
from biro.likelihood.options import EngineKeywords, EngineOptions
from rime_kernels import Gradient, Rime, Sources
from rime_kernels.deprecation import ALIASES as KERNEL_ALIASES
from rime_kernels.deprecation import RELEASES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text().split("## Deprecations")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def likelihood(tmp_path_factory: pytest.TempPathFactory) -> biro.Likelihood:
    model = sky(ONE_SOURCE + FIXED_NOISE, tmp_path_factory.mktemp("model"))
    return biro.Likelihood(observation(), model, backend="cpu", memory_limit="1 GB")


@pytest.mark.parametrize("earlier", [each for each in ALIASES if each.startswith("Likelihood.")])
def test_an_earlier_attribute_warns_and_has_the_value(earlier: str, likelihood: biro.Likelihood) -> None:
    present, _ = ALIASES[earlier]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted: object = likelihood
        for name in present.split(".")[1:]:
            wanted = getattr(wanted, name)
    with pytest.warns(DeprecationWarning, match="is called") as caught:
        found = getattr(likelihood, earlier.split(".")[1])
    assert found == wanted
    assert str(caught[0].message) == (
        f"{earlier} is called {present} now; the earlier name works until biro {gone(earlier)}"
    )
    assert caught[0].filename == __file__  # Python shows what is used in a script or a notebook


@pytest.mark.parametrize("images", [biro.image, biro.find_sources])
def test_an_earlier_argument_warns(images: object) -> None:
    """What it gives is that of the present name: tests/biro/test_names.py."""
    text = re.escape("image(n_pixel=) is called image(size=)")
    with pytest.warns(DeprecationWarning, match=text) as caught, pytest.raises(biro.InputError, match="size"):
        images(observation(), n_pixel=-1)  # type: ignore[operator]
    assert caught[0].filename == __file__


def gone(earlier: str) -> str:
    major, minor = ALIASES[earlier][1].split(".")
    return f"{major}.{int(minor) + RELEASES}"


def test_the_page_lists_the_present_ones() -> None:
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (\S+) \|", PAGE, re.M)
    assert rows == [(earlier, ALIASES[earlier][0], gone(earlier)) for earlier in ALIASES]


def test_none_outlives_its_time() -> None:
    """Where this fails, remove the alias and its line of the page."""
    now = tuple(map(int, biro.__version__.split(".")[:2]))
    late = [each for each in ALIASES if tuple(map(int, gone(each).split("."))) <= now]
    assert not late


def test_no_other_attribute_is_there(likelihood: biro.Likelihood) -> None:
    with pytest.raises(AttributeError, match="'Likelihood' object has no attribute 'log_likelihod'"):
        _ = likelihood.log_likelihod  # type: ignore[attr-defined]
    assert not hasattr(likelihood, "start")


def test_options_and_keywords_are_the_same(likelihood: biro.Likelihood, tmp_path: Path) -> None:
    """One object of options serves several likelihoods; what is given by name goes before it."""
    assert list(EngineKeywords.__annotations__) == list(EngineOptions.__dataclass_fields__)
    model = sky(ONE_SOURCE + FIXED_NOISE, tmp_path)
    options = biro.EngineOptions(backend="cpu", memory_limit="1 GB", precision="single")
    other = biro.Likelihood(observation(), model, options=options, precision="double")
    assert other.options == likelihood.options
    assert other.digest() == likelihood.digest()
    with pytest.raises(
        biro.InputError, match=r"Likelihood has no argument 'backnd'; did you mean 'backend'\?"
    ):
        biro.Likelihood(observation(), model, backnd="cpu")  # type: ignore[call-arg]


@pytest.mark.parametrize("earlier", ["chi2_together", "chi2_and_gradient_together"])
def test_an_earlier_name_of_the_kernels_warns(earlier: str) -> None:
    present = KERNEL_ALIASES[f"rime_kernels.{earlier}"][0].split(".")[1]
    with pytest.warns(DeprecationWarning, match=f"{earlier} is called .*{present} now") as caught:
        assert getattr(rime_kernels, earlier) is getattr(rime_kernels, present)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("owner", [Rime, Gradient, Sources])
def test_an_earlier_method_of_the_kernels_calls_the_present_one(owner: type) -> None:
    named = {e: p for e, (p, _) in KERNEL_ALIASES.items() if e.startswith(f"{owner.__name__}.")}
    assert named
    for earlier, present in named.items():
        called = MagicMock(spec=owner)
        method = getattr(owner, earlier.split(".")[1])
        arguments = [object() for _ in list(inspect.signature(method).parameters)[1:]]
        with pytest.warns(DeprecationWarning, match=f"{earlier} is called {present} now"):
            method(called, *arguments)
        getattr(called, present.split(".")[1]).assert_called_once_with(*arguments)
