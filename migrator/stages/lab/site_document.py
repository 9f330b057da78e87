"""The site.toml of a lab."""

import json
import os

from migrator.domain.lab import LabKind, LabState, down_command


def site_document(state: LabState) -> str:
    """site.toml as text: the sections that differ from the defaults, small enough for several batches and chunks."""
    sections: dict[str, dict[str, object]] = {
        "site": {"name": f"lab-{state.spec.name_prefix}", "state_dir": _text(state.state_dir)},
        "source": {"kind": state.spec.kind.value, "mount": _text(state.source)},
        "target": {"kind": "posix", "mount": _text(state.target)},
        "users": {"trees": ["home/*"]},
        "batch": {"max_users": 3},
        "transfer": {"jobs": 4, "chunk_size": "64MiB", "chunk_files": 500, "reserve": "64MiB"},
    }
    if state.spec.kind is LabKind.GLUSTER:
        sections["source"] |= {"volume": state.spec.volume, "via": "mount", "gluster": _text(state.gluster)}
    lines = [f"# A lab in {_text(state.spec.directory)!r}; `{down_command(state.spec.directory)}` removes it."]
    for name, keys in sections.items():
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


def _text(path: bytes) -> str:
    return os.fsdecode(path)
