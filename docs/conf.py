"""Sphinx settings: MyST pages, paired notebooks, reference pages from docstrings; no network."""

from importlib.metadata import version as installed_version

project = "pymc_bayessum"
author = "The pymc_bayessum developers"
version = release = installed_version("pymc-bayessum")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
]
html_theme = "furo"
html_title = "pymc_bayessum"
exclude_patterns = ["_build", "**.ipynb_checkpoints"]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# The notebooks are executed by the tests; the site shows their stored outputs.
nb_execution_mode = "off"
