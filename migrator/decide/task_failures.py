"""How many files that Gluster could not move are what users do meanwhile, and no trouble. Pure."""

FEW = 10
_FEW_SHARE = 0.001


def are_few(failures: int, *, moved_files: int) -> bool:
    """Whether so few failed that they are told apart from a disk or a file system that has none of its room left: a file that a
    user renames or deletes after Gluster has listed it, and before it moves it, is one (seen on GlusterFS 10.3:
    `Migrate file failed: ... lookup failed`).
    """
    return failures <= FEW + _FEW_SHARE * moved_files
