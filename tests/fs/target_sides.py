"""A source directory beside a target, for the suite that every target passes."""

import errno
import os
from pathlib import Path

from migrator.core.entry import Entry, EntryType
from migrator.fs.model import TargetCapabilities
from migrator.fs.reading import ReadingFileSystem
from migrator.fs.rules import TEMPORARY_PREFIX, compare
from migrator.fs.writing import MountedTarget
from tests.support.entries import acl
from tests.transfer.native_copy import copy_entries

DEFAULT_ACL = acl(7, 7, 5, 7, 5)


class Sides:
    """A source directory and a target, with what is needed to look at both."""

    def __init__(self, source: Path, target: Path, capabilities: TargetCapabilities) -> None:
        self.source_path, self.target_path, self.capabilities = source, target, capabilities
        self.source = ReadingFileSystem(os.fsencode(source))
        self.target = MountedTarget(os.fsencode(target), capabilities)

    def entry(self, path: bytes) -> Entry:
        found = self.source.look(path)
        assert found is not None
        return found

    def arrived(self, path: bytes) -> Entry:
        found = self.target.look(path)
        assert found is not None
        return found

    def copy(self, path: bytes) -> None:
        assert not copy_entries(self.source_path, self.target_path, [self.entry(path)], self.capabilities)

    def assert_equal(self, path: bytes) -> None:
        assert compare(self.entry(path), self.arrived(path), self.capabilities).differences == []
        if self.entry(path).type is EntryType.FILE:
            assert self.source.digest(path, "sha256").value == self.target.digest(path, "sha256").value

    def leftovers(self) -> list[str]:
        return [
            name
            for _, directories, files in os.walk(self.target_path)
            for name in (*directories, *files)
            if os.fsencode(name).startswith((TEMPORARY_PREFIX, b".migrator-copy-"))
        ]


def leads_nowhere(error: OSError) -> bool:
    return error.errno in (errno.ELOOP, errno.ENOTDIR)
