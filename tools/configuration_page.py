"""Write docs/configuration.md anew from the table of keys: `make docs`."""

from pathlib import Path

from migrator.config.render import render_reference

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

if __name__ == "__main__":
    PAGE.write_text(render_reference(), encoding="utf-8")
