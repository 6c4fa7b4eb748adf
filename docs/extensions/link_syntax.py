"""Warn of links that cannot lead anywhere; only their form is checked, for the network is not used."""

from urllib.parse import urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

log = logging.getLogger(__name__)


def check(app: Sphinx, doctree: nodes.document) -> None:
    """Look at each link of a page that is not to another page of the site."""
    for node in doctree.findall(nodes.reference):
        target = node.get("refuri", "")
        if target and not node.get("internal") and not is_address(target):
            log.warning("%r is neither a page nor an address", target, location=node, type="link_syntax")


def is_address(target: str) -> bool:
    """Whether this is an address on the web, or of mail, or a place on the same page."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return False
    if parts.scheme == "mailto":
        return "@" in parts.path
    if not parts.scheme:
        return target.startswith("#")
    host = parts.hostname or ""
    return (
        parts.scheme in ("http", "https") and "." in host.strip(".") and not set(target) & set(' "<>\\^`{|}')
    )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
