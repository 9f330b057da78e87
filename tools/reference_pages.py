"""Write docs/configuration.md and docs/cli.md anew from the program: `make docs`."""

from pathlib import Path

from migrator.cli.reference import render_cli_reference
from migrator.site.render import render_reference

DOCS = Path(__file__).resolve().parent.parent / "docs"

if __name__ == "__main__":
    (DOCS / "configuration.md").write_text(render_reference(), encoding="utf-8")
    (DOCS / "cli.md").write_text(render_cli_reference(), encoding="utf-8")
