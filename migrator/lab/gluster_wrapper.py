"""The `gluster` of a lab: a copy of this script in the lab's `bin` runs it on the first host of the cluster.

Imports nothing of the program. The lab's directory is the parent of `bin`.
"""

import json
import os
import sys


def _same_namespace(pid: int, namespace: str) -> bool:
    """Whether a process is in the named network namespace: its pid may have been reused."""
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), os.stat(f"/run/netns/{namespace}"))
    except OSError:
        return False


def main(arguments: list[str]) -> str:
    """Execute `gluster` in the namespaces of the first host; returns the reason if that is impossible."""
    directory = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    try:
        with open(os.path.join(directory, "lab.json"), encoding="ascii") as file:
            host = json.load(file)["hosts"][0]
    except (OSError, ValueError, LookupError) as error:
        return f"this lab cannot be read: {error}"
    pid = host["holder_pid"]
    if pid is not None and _same_namespace(pid, host["namespace"]):
        namespaces = ["--target", str(pid), "--net", "--mount", "--uts"]
        os.execvp("nsenter", ["nsenter", *namespaces, "--", "gluster", *arguments])  # noqa: S606, S607 (is the command)
    again = f"migrator lab down --dir {directory}; migrator lab up --dir {directory}"
    return f"this lab is not up: take it down and up again ({again})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
