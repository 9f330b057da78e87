"""Walking a brick in plain Python, for hosts where the compiled program cannot run."""

import io
import zipfile
from importlib import resources

_MODULES = ("walker", "walker_attributes", "walker_frames", "walker_main", "walker_root")
_PACKAGE = "migrator/adapters/bricks/"
_MAIN = "import sys\nfrom migrator.adapters.bricks.walker_main import main\nraise SystemExit(main(sys.argv[1:]))\n"


def walker_program() -> bytes:
    """The walker as one file, to be placed on a host and run as `python3 FILE walk --brick PATH ...` with Python 3.9 or
    later and nothing else; always the same bytes.
    """
    files = {f"{_PACKAGE}{name}.py": (resources.files(__package__) / f"{name}.py").read_bytes() for name in _MODULES}
    files |= dict.fromkeys(("migrator/__init__.py", "migrator/adapters/__init__.py", f"{_PACKAGE}__init__.py"), b"")
    files["__main__.py"] = _MAIN.encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), data)  # dated 1980 for ever
    return content.getvalue()
