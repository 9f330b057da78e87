"""Odd links: hard links and symlinks that leave their directory, their tree, or reality."""

import os
from collections.abc import Iterable

from migrator.domain.lab import OddKind
from migrator.stages.lab.odd_maker import CannotMake, OddFunctions, OddMaker


def _same_directory(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"hard-link-same-directory")
    first = maker.file(b"hard-link-same-directory/first", 2000)
    others = [maker.in_base(b"hard-link-same-directory/" + name) for name in (b"second", b"third\n", b"-fourth")]
    return [first, *(maker.writer.link(first, other) for other in others)]


def _across_directories(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"hard-link-across-directories")
    for name in (b"a", b"b", b"b/deeper"):
        maker.directory(b"hard-link-across-directories/" + name)
    first = maker.file(b"hard-link-across-directories/a/file", 70_000)
    others = [maker.in_base(b"hard-link-across-directories/" + name) for name in (b"b/file", b"b/deeper/file")]
    return [first, *(maker.writer.link(first, other) for other in others)]


def _across_trees(maker: OddMaker) -> Iterable[bytes]:
    if maker.neighbour is None:
        raise CannotMake("no neighbouring tree was given")
    maker.directory(b"hard-link-across-trees")
    here = maker.file(b"hard-link-across-trees/here", 4000)
    there = b"hard-link-from-" + maker.tree_name
    with maker.writer.parent(here) as (from_fd, name), maker.neighbour.writer.opened(b"") as to_fd:
        os.link(name, there, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
    return [here]


def _linked_symlink(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"hard-link-symlink")
    first = maker.symlink(b"hard-link-symlink/first", b"somewhere")
    return [first, maker.writer.link(first, maker.in_base(b"hard-link-symlink/second"))]


def _relative(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"symlink-relative")
    maker.file(b"symlink-relative/file")
    maker.directory(b"symlink-relative/directory")
    maker.file(b"symlink-relative/directory/inside")
    return [
        maker.symlink(b"symlink-relative/to-file", b"file"),
        maker.symlink(b"symlink-relative/to-directory", b"directory"),
        maker.symlink(b"symlink-relative/to-directory-with-slash", b"directory/"),
        maker.symlink(b"symlink-relative/roundabout", b"./directory/../directory//inside"),
        maker.symlink(b"symlink-relative/not-text", b"\xff\n"),
    ]


def _absolute(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"symlink-absolute")
    return [
        maker.symlink(b"symlink-absolute/root", b"/"),
        maker.symlink(b"symlink-absolute/file", b"/etc/hostname"),
        maker.symlink(b"symlink-absolute/proc", b"/proc/self/root"),
    ]


def _dangling(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"symlink-dangling")
    return [
        maker.symlink(b"symlink-dangling/relative", b"no/such/file"),
        maker.symlink(b"symlink-dangling/absolute", b"/no/such/file"),
        maker.symlink(b"symlink-dangling/above-the-root", b"../" * 60 + b"no/such/file"),
    ]


def _loop(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"symlink-loop")
    return [
        maker.symlink(b"symlink-loop/itself", b"itself"),
        maker.symlink(b"symlink-loop/one", b"two"),
        maker.symlink(b"symlink-loop/two", b"one"),
        maker.symlink(b"symlink-loop/parent", b".."),
    ]


def _symlink_across_trees(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"symlink-across-trees")
    up = b"../" * (len(maker.in_base(b"symlink-across-trees").split(b"/")))
    neighbour = maker.neighbour.name if maker.neighbour else b"neighbour"
    return [
        maker.symlink(b"symlink-across-trees/file", up + b"../" + neighbour + b"/hard-link-from-" + maker.tree_name),
        maker.symlink(b"symlink-across-trees/tree", up + b"../" + neighbour),
    ]


def _into_source(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"symlink-into-source")
    return [
        maker.symlink(b"symlink-into-source/root", maker.source_mount),
        maker.symlink(b"symlink-into-source/deeper", maker.source_mount + b"/home/somebody/data"),
    ]


def _long(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"symlink-long")
    # XFS, and so every brick, keeps at most 1,023 bytes of a symlink (XFS_SYMLINK_MAXLEN).
    return [maker.symlink(b"symlink-long/1000-bytes", b"/".join([b"t" * 199] * 5) + b"/")]


LINK_FUNCTIONS: OddFunctions = {
    OddKind.HARD_LINK_SAME_DIRECTORY: _same_directory,
    OddKind.HARD_LINK_ACROSS_DIRECTORIES: _across_directories,
    OddKind.HARD_LINK_ACROSS_TREES: _across_trees,
    OddKind.HARD_LINK_SYMLINK: _linked_symlink,
    OddKind.SYMLINK_RELATIVE: _relative,
    OddKind.SYMLINK_ABSOLUTE: _absolute,
    OddKind.SYMLINK_DANGLING: _dangling,
    OddKind.SYMLINK_LOOP: _loop,
    OddKind.SYMLINK_ACROSS_TREES: _symlink_across_trees,
    OddKind.SYMLINK_INTO_SOURCE: _into_source,
    OddKind.SYMLINK_LONG: _long,
}
