"""How Sphinx builds the site: `sphinx-build -n -W --keep-going docs docs/_build`."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "extensions")]

from biro import __version__  # noqa: E402

project = "biro"
author = "The biro developers"
copyright = "2026, the biro developers"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "code_links",
    "command_line",
    "link_syntax",
    "public_names",
]
exclude_patterns = ["_build", "extensions", "**/.ipynb_checkpoints"]
nitpicky = True
# The types of arguments stand in the docstrings, with shapes and units, which annotations do not have.
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
autodoc_class_signature = "mixed"
default_role = "code-link"
numpydoc_show_class_members = False
python_maximum_signature_line_length = 90
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = f"biro {release}"
html_static_path = ["static"]
html_css_files = ["biro.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"
highlight_language = "text"  # equations of docstrings

# Tutorials run on the reference data: see tests/conftest.py for where they are looked for.
data = Path(os.environ.get("BIRO_TEST_DATA", HERE.parents[1] / "shared" / "data")).resolve()
nb_execution_mode = "auto"
nb_execution_excludepatterns = ["notebooks/*"]  # tests/biro/test_notebook.py executes these
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_output_stderr = "remove"  # bars of progress
if data.is_dir():
    os.environ["BIRO_TEST_DATA"] = str(data)
else:
    nb_execution_excludepatterns.append("tutorials/*")
    print(f"The tutorials are not executed, because there are no reference data at {data} (BIRO_TEST_DATA).")
