"""`lab.json`: the parts of a lab, recorded before they are made, so that `down` finds them after a crash."""

import json
import os
from pathlib import Path

from migrator.core import documents
from migrator.core.durable import write_durably
from migrator.core.errors import Refused
from migrator.core.paths import show
from migrator.lab.model import LabState

RECORD_NAME = b"lab.json"
_FORMAT = "migrator lab 1"


def write_record(state: LabState, directory: bytes | None = None) -> None:
    """Write `lab.json` into the lab's directory, atomically and durably. May be called again. `directory`: into this
    one, which is then renamed to the lab's.
    """
    content = documents.encode({"format": _FORMAT, **documents.plain(state)}, indent=1).encode("ascii")
    write_durably(Path(os.fsdecode(directory or state.spec.directory), os.fsdecode(RECORD_NAME)), content)


def read_record(directory: bytes) -> LabState:
    """The lab in a directory. Raises Refused if there is none, or if this version cannot read it."""
    try:
        with open(directory + b"/" + RECORD_NAME, "rb") as file:
            document = json.loads(file.read())
        if document["format"] == _FORMAT:
            del document["format"]  # any other remains, and is an unknown key
        state: LabState = documents.decode(LabState, document)
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(
            f"{show(directory)} is no lab",
            cause="it has no lab.json",
            hint="give the directory that `migrator lab up` made",
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(
            f"the record of the lab in {show(directory)} cannot be read: {error}",
            cause="another version of the program made it, or it was edited",
            hint="take it down with the version that made it",
        ) from error
    return state
