"""BeeGFS's tools for tests: they replay what version 8 said, or tables of version 7, and record their calls."""

import json
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "beegfs"
QUOTAS = FIXTURES / "quotas"
VERSIONS = ("8.2.2", "8.3.1")

_PROGRAM = """#!{python} -IS
import json, pathlib, sys
here, words = pathlib.Path({directory!r}), sys.argv[1:]
with open(here / "asked", "a") as asked:
    asked.write(json.dumps(words) + "\\n")
def done():
    # 8.3.1 checks its licence after every command that has succeeded.
    alert = here / "alert"
    if alert.exists():
        sys.stderr.write(alert.read_text())
        sys.exit(1)
    sys.exit(0)
def end(name, code=0):
    sys.stdout.write((here / name).read_text())
    sys.stderr.write((here / (name + ".err")).read_text() if (here / (name + ".err")).exists() else "")
    sys.exit(code) if code else done()
if words[:2] == ["target", "list"]:
    end("targets", int((here / "code").read_text()))
if words[:2] == ["quota", "set-limits"] and (here / "quota-limits").exists():
    values = dict(zip(words[3:-2:2], words[4:-2:2]))
    pool = {{"s:1": "storage_pool_default"}}[words[2]]
    with open(here / "quota-limits", "a") as limits:
        for uid in values["--uid"].split(","):
            row = {{"id": int(uid), "inode": "-", "name": uid, "pool": pool, "space": values["--space"], "type": "user"}}
            limits.write(json.dumps(row) + "\\n")
    done()
counted = words[:1] == ["quota"] and here / ("quota-" + words[1].partition("-")[2])
if counted and counted.exists():
    end(counted.name)
if words[:1] == ["quota"]:
    end("quota", int((here / "quota.code").read_text()))
if words[:4] == ["node", "list", "--node-type", "client"]:
    end("clients")
if words[:2] == ["pool", "list"]:
    end("pools")
if words[:1] == ["license"]:
    end("license", int((here / "license.code").read_text()))
if words[0] != "entry":
    sys.exit("Error: unknown command")
stripes = json.loads((here / "stripes").read_text())
paths = words[words.index("--mount") + 2:]
values = dict(zip(words[2:-1:2], words[3:-1:2])) if words[1] == "set" else {{}}
for path in paths:
    count, size = stripes.get(path, [4, 1 << 19])
    if words[1] == "set":
        stripes[path] = [int(values.get("--num-targets", count)), int(values.get("--chunk-size", size))]
    else:
        row = json.loads((here / "entry").read_text().strip().strip("[]"))
        row["stripe_pattern"] = "RAID0 (%dx%dK)" % (count, size >> 10)
        print(json.dumps(row))
(here / "stripes.new").write_text(json.dumps(stripes))
(here / "stripes.new").replace(here / "stripes")
if words[1] == "set":
    sys.stderr.write("Summary: processed %d entries | configuration updates: DefaultNumTargets (3)\\n" % len(paths))
done()
"""


def recorded(name: str, version: str = "8.2.2") -> bytes:
    """What the real tool said."""
    return (FIXTURES / version / name).read_bytes()


def targets(name: str, version: str = "8.2.2", changes: Mapping[str, Mapping[str, Any]] | None = None) -> bytes:
    """`target list` in a recorded state (`cap-low`, `stopped-offline`; empty: healthy), some fields changed by alias."""
    rows = json.loads(recorded(f"target-list-all-raw{'-' if name else ''}{name}.json.out", version))
    changed = [row | dict((changes or {}).get(row["alias"], {})) for row in rows]
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in changed)


@dataclass(frozen=True)
class FakeTool:
    """A `beegfs` in a directory of its own."""

    directory: Path

    @property
    def program(self) -> Path:
        return self.directory / "beegfs"

    @property
    def asked(self) -> Sequence[Sequence[str]]:
        """The words of every call."""
        file = self.directory / "asked"
        said = file.read_text() if file.exists() else ""
        # A line that is just being written has no end yet.
        return [json.loads(line) for line in said[: said.rfind("\n") + 1].splitlines()]

    @property
    def stripes(self) -> Mapping[str, Sequence[int]]:
        """By path what was set: targets, and bytes of a chunk."""
        return {path: tuple(pair) for path, pair in json.loads((self.directory / "stripes").read_text()).items()}

    def tell(self, output: bytes, code: int = 0) -> None:
        """From now on `target list` says this."""
        (self.directory / "targets.new").write_bytes(output)
        (self.directory / "targets.new").replace(self.directory / "targets")
        (self.directory / "code.new").write_text(str(code))
        (self.directory / "code.new").replace(self.directory / "code")

    def license(self) -> None:
        """From now on BeeGFS has a licence."""
        for name, said in (("license", "{}\n"), ("license.err", ""), ("license.code", "0")):
            (self.directory / name).write_text(said)
        (self.directory / "alert").unlink(missing_ok=True)

    def count_quotas(self, *, default: str = "5368709120") -> None:
        """From now on there are quotas, of `QUOTAS`; `default` is the limit of users without one of their own."""
        for name in ("usage", "limits", "defaults"):
            said = (QUOTAS / f"8-{name}.out").read_text().replace("5368709120", default)
            (self.directory / f"quota-{name}").write_text(said)


def fake_tool(directory: Path, version: str = "8.2.2") -> FakeTool:
    """A healthy BeeGFS without a licence library. The later version checks its licence after every command."""
    directory.mkdir()
    tool = FakeTool(directory)
    tool.program.write_text(_PROGRAM.format(python=sys.executable, directory=str(directory)))
    tool.program.chmod(tool.program.stat().st_mode | stat.S_IXUSR)
    tool.tell(targets("", version))
    if version == VERSIONS[-1]:
        (directory / "alert").write_bytes(recorded("target-list-all-raw.ndjson.err", version))
    (directory / "license").write_bytes(b"")
    (directory / "license.err").write_bytes(recorded("license.json.err", version))
    (directory / "license.code").write_text("1")
    (directory / "stripes").write_text("{}")
    clients = [line for line in recorded("node-list-raw.ndjson.out").splitlines() if json.loads(line)["type"] == 1]
    (directory / "clients").write_bytes(b"\n".join(clients) + b"\n")
    (directory / "pools").write_bytes(recorded("pool-list.json.out").strip()[1:-1] + b"\n")
    (directory / "entry").write_bytes(recorded("entry-info-dir.json.out"))
    (directory / "quota").write_bytes(b"")
    (directory / "quota.err").write_bytes(recorded("quota-list-usage-unlicensed.json.err"))
    (directory / "quota.code").write_text("1")
    return tool
