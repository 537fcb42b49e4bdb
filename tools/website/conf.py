"""Sphinx's configuration: furo's theme, Markdown by MyST, the reference from the docstrings."""

import re

from docutils.nodes import SkipNode
from docutils.utils.math import latex2mathml
from pygments.lexers import CppLexer

import mlx_norms

project = "mlx_norms"
copyright = "mlx_norms contributors, MIT license"
release = mlx_norms.__version__
root_doc = "index"
extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"),
]

myst_heading_anchors = 4  # as GitHub's
myst_enable_extensions = ["attrs_inline"]  # classes of images

autosummary_generate = False  # each op has a page already
autodoc_member_order = "groupwise"
autodoc_typehints = "none"  # the docstrings have shapes and dtypes, too
napoleon_custom_sections = ["Shape"]
napoleon_use_rtype = False
python_maximum_signature_line_length = 60
add_module_names = False
toc_object_entries = False
highlight_language = "text"

# A name of ours that leads nowhere is an error. Names of others have no target here.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!mlx_norms\b).*")]

html_theme = "furo"
html_title = f"mlx_norms {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_math_renderer = "mathml"


def math(as_block):
    """MathML, which needs neither a script nor a network."""

    def visit(self, node):
        text = re.sub(r"\s+", " ", node.astext())
        formula = latex2mathml.tex2mathml(text, as_block=as_block)
        self.body.append(f'<div class="formula">{formula}</div>' if as_block else formula)
        raise SkipNode

    return visit


def setup(app):
    app.add_lexer("metal", CppLexer)
    app.add_html_math_renderer("mathml", (math(False), None), (math(True), None))
