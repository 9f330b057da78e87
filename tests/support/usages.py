"""Usages of user trees, for tests of what decides on them."""

from migrator.core.entry import UserTree
from migrator.plan.model import AgeBucket, TreeUsage
from migrator.plan.rules import AGE_BOUNDS


def usage(path: bytes, *, size_bytes: int = 0, files: int = 0, directories: int = 0, age_s: float = 0.0) -> TreeUsage:
    ages = tuple(AgeBucket(label=label, max_age_s=bound, files=0, size_bytes=0) for label, bound in AGE_BOUNDS)
    return TreeUsage(
        tree=UserTree(path=path, user=path.decode()),
        files=files,
        directories=directories,
        size_bytes=size_bytes,
        allocated_bytes=size_bytes,
        tiny_files=0,
        largest_bytes=size_bytes,
        largest_path=path,
        link_groups=0,
        symlinks=0,
        specials=0,
        by_mtime=ages,
        by_atime=ages,
        median_age_s=age_s,
    )
