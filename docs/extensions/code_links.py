"""Docstrings as they are written here: equations are indented, and text in single backticks is code.

Text in single backticks becomes a link where the API reference documents an object of this name.

`biro.join` and `Observation` become links; `theta` and `biro fit` stay code. A dotted name that begins with
a package must be documented, or exist, so that no docstring names what is gone.
"""

import importlib
import importlib.util
import re
from collections.abc import Mapping, Sequence

from docutils import nodes
from docutils.parsers.rst.states import Inliner
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

log = logging.getLogger(__name__)
NAME = re.compile(r"[A-Za-z_][\w.]*\w")
CLASS = re.compile(r"[A-Z][a-z]\w+")
PACKAGES = ("biro.", "rime_kernels.")


def role(
    name: str,
    rawtext: str,
    text: str,
    lineno: int,
    inliner: Inliner,
    options: Mapping[str, object] | None = None,
    content: Sequence[str] = (),
) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """Code that may become a link when all objects are known."""
    text = text.replace("\x00", "\\")
    literal = nodes.literal(rawtext, text, classes=["code-link"])
    target = text.split("(")[0].strip("~.")
    if not NAME.fullmatch(target):
        return [literal], []
    env = inliner.document.settings.env
    link = addnodes.pending_xref(
        rawtext, literal, refdomain="", reftype="code-link", reftarget=target, refdoc=env.docname
    )
    link["scope"] = (env.ref_context.get("py:module"), env.ref_context.get("py:class"))
    link.source, link.line = inliner.reporter.get_source_and_line(lineno)
    return [link], []


def documented(env: BuildEnvironment, target: str, scope: tuple[str | None, str | None]) -> str | None:
    """Full name of the one object that a name can mean: in the class, in the module, or anywhere."""
    objects = env.domains.python_domain.objects
    module, owner = scope
    around = [".".join(part for part in (module, owner, target) if part), f"{module}.{target}", target]
    for name in around if owner else around[1:]:
        if name in objects:
            return name
    ends = [name for name, entry in objects.items() if name.endswith(f".{target}") and not entry.aliased]
    if "." in target or target[0].isupper():
        return min(ends, key=len) if ends else None
    return None


def resolve(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, contnode: nodes.Element
) -> nodes.Element | None:
    """A link, or the code by itself."""
    if node["reftype"] != "code-link":
        return None
    target = node["reftarget"]
    name = documented(env, target, node["scope"])
    if name is None:
        if target.startswith(PACKAGES) and not is_module(target):
            log.warning("%r is neither documented nor a module", target, location=node, type="ref")
        return contnode
    return link_to(app, name, node["refdoc"], contnode)


def link_types(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link classes in types of arguments and results and in what is raised, and full names in code."""
    for literal in list(doctree.findall(nodes.literal)):
        target = literal.astext().split("(")[0]
        if target.startswith(PACKAGES) and not isinstance(literal.parent, nodes.reference | nodes.title):
            name = documented(app.env, target, (None, None))
            if name is not None:
                literal.replace_self(link_to(app, name, docname, literal.deepcopy()))
    for content in doctree.findall(addnodes.desc_content):
        for place in content.findall(lambda node: isinstance(node, nodes.term | nodes.classifier)):
            for text in list(place.findall(nodes.Text)):
                if text.parent is place:
                    place.replace(text, linked_words(app, str(text), docname))


def linked_words(app: Sphinx, text: str, docname: str) -> list[nodes.Node]:
    """The text, with links for names of documented classes."""
    pieces: list[nodes.Node] = []
    for word in re.split(r"\b([A-Z][a-z]\w+)\b", text):
        name = documented(app.env, word, (None, None)) if CLASS.fullmatch(word) else None
        if name is None:
            pieces.append(nodes.Text(word))
        else:
            pieces.append(link_to(app, name, docname, nodes.Text(word)))
    return pieces


def link_to(app: Sphinx, name: str, docname: str, shown: nodes.Node) -> nodes.reference:
    """A link from a page to a documented object."""
    entry = app.env.domains.python_domain.objects[name]
    uri = app.builder.get_relative_uri(docname, entry.docname)
    return nodes.reference("", "", shown, internal=True, reftitle=name, refuri=f"{uri}#{entry.node_id}")


def is_module(name: str) -> bool:
    """Whether there is a module of this name, or one that has this attribute."""
    try:
        if importlib.util.find_spec(name) is not None:
            return True
    except (ImportError, ValueError):
        pass
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ImportError:
        return False


def prepare(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Make reStructuredText of a docstring: indented paragraphs are equations, bars absolute values."""
    prepared: list[str] = []
    margin, in_equation = 0, False
    for i, line in enumerate(lines):
        indentation = len(line) - len(line.lstrip())
        if line.strip():
            begins = not in_equation and i > 0 and not lines[i - 1].strip() and indentation >= margin + 4
            if begins:
                prepared += [" " * margin + "::", ""]
            in_equation = begins or (in_equation and indentation > margin)
            if not in_equation:
                margin, line = indentation, kept(line)
        prepared.append(line)
    lines[:] = prepared


def kept(line: str) -> str:
    """The line with bars that begin no substitution and stars that begin no emphasis, except in code."""
    if line.lstrip().startswith((">>>", "...")):
        return line
    pieces = line.split("`")
    pieces[::2] = [piece.replace("|", r"\|") for piece in pieces[::2]]
    if not line.lstrip().startswith("*"):  # a list, or **options
        pieces[::2] = [piece.replace("*", r"\*") for piece in pieces[::2]]
    return "`".join(pieces)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_role("code-link", role)
    app.connect("missing-reference", resolve)
    app.connect("doctree-resolved", link_types)
    app.connect("autodoc-process-docstring", prepare, priority=100)  # before numpydoc
    return {"parallel_read_safe": True, "parallel_write_safe": True}
