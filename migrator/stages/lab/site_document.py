"""The site.toml of a lab."""

import json
import os
import shutil
import sys
from collections.abc import Mapping

from migrator.domain.lab import LabKind, LabState, down_command
from migrator.stages.lab.sshd import destination

_PATH_OVER_SSH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What sshd gives root."""


def site_document(state: LabState) -> str:
    """site.toml as text: the sections that differ from the defaults, small enough for several batches and chunks."""
    sections: dict[str, dict[str, object]] = {
        "site": {"name": f"lab-{state.spec.name_prefix}", "state_dir": _text(state.state_dir)},
        "source": {"kind": state.spec.kind.value, "mount": _text(state.source)},
        "target": {"kind": "posix", "mount": _text(state.target)},
        "users": {"trees": ["home/*"]},
        "batch": {"max_users": 3},
        "transfer": {"jobs": 4, "chunk_size": "64MiB", "chunk_files": 500, "reserve": "64MiB"},
        "cutover": {"link": f"{_text(links_dir(state))}/{{user}}"},
    }
    if state.spec.kind is LabKind.GLUSTER:
        sections["source"] |= {"volume": state.spec.volume, "via": "auto", "gluster": _text(state.gluster)}
    sections |= host_sections(state, state.target)
    lines = [f"# A lab in {_text(state.spec.directory)!r}; `{down_command(state.spec.directory)}` removes it."]
    return "\n".join([*lines, *section_lines(sections)]) + "\n"


def links_dir(state: LabState) -> bytes:
    """Where the paths of the users are, as `/home` elsewhere."""
    return state.spec.directory + b"/home"


def host_sections(state: LabState, target: bytes) -> Mapping[str, dict[str, object]]:
    """A section of site.toml for every host that can be reached over ssh, by the section's name; `target` is the target's
    mount or a directory of it, which every host sees at the same path.
    """
    if not state.ssh_config:
        return {}
    own: dict[str, object] = {}
    if shutil.which("python3", path=_PATH_OVER_SSH) is None:
        own = {"python": os.path.realpath(sys.executable)}
    return {
        f'source.hosts."{host.address}"': {
            "ssh": destination(host),
            "options": ["-F", _text(state.ssh_config)],
            "target": _text(target),
            **own,
        }
        for host in state.hosts
    }


def section_lines(sections: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Sections as lines of TOML."""
    lines: list[str] = []
    for name, keys in sections.items():
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    return lines


def _text(path: bytes) -> str:
    return os.fsdecode(path)
