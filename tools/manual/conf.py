"""How Sphinx makes the manual; pages are Markdown as GitHub reads it."""

from migrator import __version__

project = "migrator"
author = "the authors of migrator"
copyright = author  # noqa: A001 - Sphinx reads this name
release = version = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 4
highlight_language = "none"
html_theme = "furo"
html_title = f"migrator {release}"
html_show_sourcelink = False
html_copy_source = False
