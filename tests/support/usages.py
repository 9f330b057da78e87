"""Usages of user trees, for tests of what decides on them."""

from migrator.core.entry import UserTree
from migrator.plan.model import AgeBucket, TreeUsage
from migrator.plan.rules import AGE_BOUNDS
from tests.support.making import made


def usage(path: bytes, *, size_bytes: int = 0, files: int = 0, directories: int = 0, age_s: float = 0.0) -> TreeUsage:
    ages = tuple(AgeBucket(label=label, max_age_s=bound, files=0, size_bytes=0) for label, bound in AGE_BOUNDS)
    return made(
        TreeUsage,
        tree=UserTree(path=path, user=path.decode()),
        files=files,
        directories=directories,
        size_bytes=size_bytes,
        allocated_bytes=size_bytes,
        largest_bytes=size_bytes,
        largest_path=path,
        by_mtime=ages,
        by_atime=ages,
        median_age_s=age_s,
    )
