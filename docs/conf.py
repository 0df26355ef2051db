"""Sphinx settings: MyST pages, paired notebooks, reference pages from docstrings; no network."""

import inspect
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from cycler import cycler

import pymc_bayessum as pbs

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
# Some rooms have a shorter public name than the path they lie at; autodoc imports by name.
for name, room in inspect.getmembers(pbs, inspect.ismodule):
    sys.modules.setdefault(f"pymc_bayessum.{name}", room)

project = "pymc_bayessum"
author = "The pymc_bayessum developers"
project_copyright = "the pymc_bayessum developers"
version = release = installed_version("pymc-bayessum")

extensions = [
    "embedding_dictionary",
    "gallery",
    "matplotlib.sphinxext.plot_directive",
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
]
html_theme = "furo"
html_title = "pymc_bayessum"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]
templates_path = ["_templates"]

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 110)]
# Shades that differ in lightness, so that grey print loses nothing.
plot_rcparams = {"axes.prop_cycle": cycler(color=["#00204c", "#7c7b78", "#d2b84f"])}
plot_apply_rcparams = True

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# The notebooks are executed by the tests; the site shows their stored outputs.
nb_execution_mode = "off"
