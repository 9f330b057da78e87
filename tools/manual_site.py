"""Build the manual as a site that needs no server: `make manual`, in the packages, and in `make test`.

Strict: a link that leads nowhere, or a page that no table of contents has, ends it.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "tools" / "manual"


def build_site(documents: Path, target: Path) -> None:
    """Write the site of `documents` (README.md, docs/, hooks/ and so on) to `target`, which must not exist."""
    with tempfile.TemporaryDirectory() as scratch:
        pages = Path(scratch) / "pages"
        for folder in ("docs", "hooks", "plans"):
            shutil.copytree(
                documents / folder, pages / folder, ignore=shutil.ignore_patterns("__pycache__", "*.chunks")
            )
        for page in (*documents.glob("*.md"), documents / "LICENSE", SETTINGS / "index.md"):
            shutil.copy(page, pages)
        options = ["--quiet", "--fail-on-warning", "--keep-going", "-c", str(SETTINGS), "-d", f"{scratch}/doctrees"]
        subprocess.run([sys.executable, "-m", "sphinx", *options, str(pages), str(target)], check=True)
    (target / ".buildinfo").unlink(missing_ok=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        site = Path(made) / "site"
        build_site(ROOT, site)
        if len(sys.argv) > 1:
            shutil.rmtree(sys.argv[1], ignore_errors=True)
            shutil.copytree(site, sys.argv[1])
