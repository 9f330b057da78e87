r"""Odd names: bytes that lists, logs, tables and argument parsers have tripped over."""

import errno
from collections.abc import Iterable, Mapping

from migrator.domain.lab import OddKind
from migrator.stages.lab.odd_maker import OddFunction, OddFunctions, OddMaker

_DEEP_COMPONENT = b"deep-" + b"d" * 195
_DEEP_LEVELS = 25
"""25 levels of 200 bytes: over 5,000 bytes, beyond PATH_MAX and beyond what rsync's lists take."""

_DEEP_ENOUGH_BYTES = 3900
"""What counts as deep where the file system allows no more."""

_TOO_DEEP = frozenset({errno.ENAMETOOLONG, errno.ESTALE})
"""GlusterFS 10.3 knows no path that exceeds PATH_MAX on the brick, the brick's own path included: mkdir and lookup give
one of these at about 4,080 bytes from the volume's root, seen with components of 20 to 200 bytes."""

_EDGE_LENGTHS = (4030, 4060, 4090, 4094, 4095, 4096, 4097, 4100)
"""Lengths of paths, from the tree on, around the limits of 4,095 and 4,096 bytes."""

NAMES: Mapping[OddKind, tuple[bytes, ...]] = {
    OddKind.NAME_NEWLINE: (b"new\nline", b"\n", b"ends with newline\n", b"carriage\r\nreturn"),
    OddKind.NAME_INVALID_UTF8: (
        b"latin-\xe9",
        b"\xff\xfe",
        b"cut-\xe2\x82",
        b"overlong-\xc0\xaf",
        b"surrogate-\xed\xa0\x80",
    ),
    OddKind.NAME_LEADING_DASH: (b"-rf", b"--delete", b"-", b"- *", b"--files-from=list"),
    OddKind.NAME_SPACE: (b" ", b" leading", b"trailing ", b"two  blanks", b"tab\there"),
    OddKind.NAME_QUOTES: (b"'single'", b'"double"', b"`id`", b"$(id)", b'it\'s; "both" & more | < >'),
    OddKind.NAME_BACKSLASH: (b"back\\slash", b"\\", b"\\n", b"ends\\", b"\\\\server\\share"),
    OddKind.NAME_OCTAL_ESCAPE: (b"\\#012", b"a\\#012b", b"\\#134#012", b"\\012", b"\\x0a"),
    OddKind.NAME_CONTROL: (
        b"\x01",
        b"red-\x1b[31m",
        b"delete-\x7f",
        b"bell-\x07",
        b"vertical-\x0b-\x85",
        b"clear-\x1b[2J",
    ),
    OddKind.NAME_PATTERN: (
        b"*",
        b"?",
        b"[a-z]",
        b"{a,b}",
        b"+ include",
        b"#comment",
        b";comment",
        b"!",
        b"~",
        b"%s%n%0A",
    ),
    OddKind.NAME_MARKUP: (
        b"<script>alert(1)<|script>",
        b"=1+1",
        b"a,b;c",
        b"[bold]rich[|bold]",
        b"{{ 7 * 7 }}",
        b"|table|",
    ),
    OddKind.NAME_UNICODE: (
        "é".encode(),  # one code point, and the same letter as two
        "e\u0301".encode(),
        "日本語".encode(),
        "\U0001f40c".encode(),
        "right-\u202eto-left".encode(),
        "line\u2028separator".encode(),
        "next\u0085line".encode(),
        "\ufeffbom".encode(),
    ),
    OddKind.NAME_255_BYTES: (b"n" * 255, "ü".encode() * 127 + b"x", b"\n" * 255),
    OddKind.NAME_RSYNC_TEMPORARY: (b".x.AbC123", b".report.txt.q1W2e3", b".~tmp~", b".rsync-partial"),
}


def _named(kind: OddKind) -> OddFunction:
    def make(maker: OddMaker) -> Iterable[bytes]:
        folder = kind.value.encode()
        maker.directory(folder)
        made = [maker.file(folder + b"/" + name, 10 + len(name)) for name in NAMES[kind]]
        # The same name as a directory with something in it, and as a symlink to itself.
        odd = NAMES[kind][0]
        maker.directory(folder + b"/directories")
        maker.directory(folder + b"/directories/" + odd)
        made.append(maker.file(folder + b"/directories/" + odd + b"/" + odd))
        maker.directory(folder + b"/symlinks")
        made.append(maker.symlink(folder + b"/symlinks/" + odd, odd))
        return made

    return make


def _glusterfs(maker: OddMaker) -> Iterable[bytes]:
    folder = OddKind.NAME_GLUSTERFS.value.encode()
    maker.directory(folder)
    inner = maker.directory(folder + b"/.glusterfs")
    maker.directory(folder + b"/.glusterfs/00")
    maker.directory(folder + b"/.glusterfs/00/00")
    like_a_gfid = b"00000000-0000-0000-0000-000000000001"
    return [inner, maker.file(folder + b"/.glusterfs/00/00/" + like_a_gfid), maker.file(folder + b"/.trashcan")]


def _deep(maker: OddMaker) -> Iterable[bytes]:
    folder = OddKind.DEEP_PATH.value.encode()
    maker.directory(folder)
    made: list[bytes] = []
    try:
        for path in _deep_paths(maker, folder):
            made.append(path)  # noqa: PERF402 (what was made before a refusal counts)
    except OSError as error:
        if error.errno not in _TOO_DEEP or len(made[-1]) < _DEEP_ENOUGH_BYTES:
            raise
    return made


def _deep_paths(maker: OddMaker, folder: bytes) -> Iterable[bytes]:
    wanted = list(_EDGE_LENGTHS)
    for _ in range(_DEEP_LEVELS):
        prefix_bytes = len(maker.in_base(folder)) + 1
        while wanted and 1 <= wanted[0] - prefix_bytes <= 220:
            name = b"edge-%d-" % wanted[0]
            yield maker.file(folder + b"/" + name.ljust(wanted.pop(0) - prefix_bytes, b"e"))
        folder += b"/" + _DEEP_COMPONENT
        yield maker.directory(folder)
    yield maker.file(folder + b"/bottom", 5000)
    yield maker.symlink(folder + b"/up", b"../" * 3 + b"nowhere")


NAME_FUNCTIONS: OddFunctions = {
    **{kind: _named(kind) for kind in NAMES},
    OddKind.NAME_GLUSTERFS: _glusterfs,
    OddKind.DEEP_PATH: _deep,
}
