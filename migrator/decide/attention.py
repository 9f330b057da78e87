"""What to do about a file that did not arrive."""

import errno
from collections.abc import Mapping

from migrator.domain.transfer import FileProblem

_ADVICE: Mapping[int, str] = {
    errno.EIO: "a disk or a server fails: see `dmesg` and the servers' logs; restore the file, or tell its user",
    errno.EACCES: "see whether root may do that on both sides (root squashing, `lsattr`, `getfacl`)",
    errno.EPERM: "see whether root may do that on both sides (root squashing, `lsattr`, `getfacl`)",
    errno.ENAMETOOLONG: "the target cannot hold so long a name: let its user rename it",
    errno.EILSEQ: "the target cannot hold such a name: let its user rename it",
    errno.EINVAL: "the target cannot hold such a name or attribute: let its user change it",
    errno.EFBIG: "the target cannot hold so big a file: see its limits",
    errno.EOPNOTSUPP: "the target cannot keep that: see what `migrator doctor` says of it",
    errno.ENOSPC: "an attribute that is too big for the target, or a full one: see `df -h` and `df -i`",
    errno.EEXIST: "something else is in its place on the target: look, and take it away",
    errno.ENOTEMPTY: "something else is in its place on the target: look, and take it away",
    errno.ENOTDIR: "something else is in its place on the target, or on the way there: look",
    errno.ELOOP: "a symlink is in its place, or on the way there: look",
    errno.ESTALE: "it was being moved or replaced meanwhile",
    errno.ETXTBSY: "it is being executed: end that program",
}
_OTHER = "it changed meanwhile, or what is the matter is in the log of the run"


def advice(problem: FileProblem) -> str:
    """The next step for one file, in a few words. Whatever it is, `migrator verify` lists what is not there."""
    return _ADVICE.get(problem.errno or 0, _OTHER)


AFTERWARDS = (
    "Once they have been put right, `migrator run` of the same batch makes a delta pass, which sends them again, whether they "
    "changed or not."
)
"""What follows once the files have been put right."""
