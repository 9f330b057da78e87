"""The licences of what the packages hold: Debian's copyright file, and the names of licences for the .rpm."""

from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from tools.components import license_of

HEAD = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: migrator

Files: *
Copyright: the authors of migrator
License: Apache-2.0
 On Debian systems the whole text is in /usr/share/common-licenses/Apache-2.0.

Files: {program}
Copyright: the authors of migrator
           the authors of the GNU C Library
           Yann Collet (xxHash)
License: Apache-2.0 and LGPL-2.1-or-later and BSD-2-Clause
 The program of migrator (Apache-2.0) holds parts of the GNU C Library (LGPL-2.1-or-later; on Debian systems the
 whole text is in /usr/share/common-licenses/LGPL-2.1) and of xxHash (BSD-2-Clause). To use it with other versions
 of both, compile its sources anew, which are in
 {sources}
"""
COMPILED_IN = ("LGPL-2.1-or-later", "BSD-2-Clause")
SPDX = {
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.1-or-later",
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
}
"""Names in metadata without an SPDX expression, as the texts of these libraries are."""
KNOWN = frozenset(
    ("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "LGPL-2.1-or-later", "MIT", "PSF-2.0", "Apache-2.0 AND BSD-2-Clause")
)


def licenses_of(libraries: Path) -> list[str]:
    """The SPDX names of all licences that apply to a part of the packages. Raises ValueError for one that was not reviewed."""
    named = [license_name for _, license_name in _libraries(libraries)]
    return sorted({one for name in ("Apache-2.0", *COMPILED_IN, *named) for one in name.split(" AND ")})


def copyright_of(libraries: Path, installed: Path) -> str:
    """Debian's copyright file; `libraries` will be at `installed`. Raises ValueError as `licenses_of`."""
    native = installed / "migrator/native"
    stanzas = [HEAD.format(program=native / "migrator-native", sources=f"/{native}/src")]
    for library, license_name in _libraries(libraries):
        files = library.files or ()
        places = sorted(
            {file.parts[0] for file in files if file.parts[0] != ".." and (libraries / file.parts[0]).exists()}
        )
        texts = [f"/{installed / file}" for file in files if _is_license(file.name) and ".dist-info" in file.parts[0]]
        if not places or not texts:
            raise ValueError(f"{library.name} has no file, or no text of its licence")
        stanzas.append(
            f"Files: {_indented(f'{installed / place}*' for place in places)}\n"
            f"Copyright: the authors of {library.name}, as named in the files below\n"
            f"License: {license_name.replace(' AND ', ' and ')}\n"
            f" {_indented(texts)}\n"
        )
    return "\n".join(stanzas)


def _libraries(libraries: Path) -> Iterator[tuple[Distribution, str]]:
    found = {each.name: each for each in distributions(path=[str(libraries)]) if each.name != "migrator"}
    for name, library in sorted(found.items(), key=lambda item: item[0].lower()):
        stated = license_of(library)
        license_name = SPDX.get(stated, stated)
        if license_name not in KNOWN:
            raise ValueError(f"the licence of {name} is {stated!r}: read it, and add it to tools/licences.py")
        yield library, license_name


def _is_license(name: str) -> bool:
    return name.startswith(("LICENSE", "COPYING", "NOTICE", "AUTHORS"))


def _indented(lines: Iterator[str] | list[str]) -> str:
    return "\n ".join(lines)
