"""Asking rsync what it can do."""

from migrator.decide.rsync_features import RsyncFeatures, parse_features
from migrator.domain.errors import ToolFailed
from migrator.domain.paths import show
from migrator.ports.processes import Command, Processes

_ASK_TIMEOUT_S = 30.0


async def ask(processes: Processes, program: bytes) -> RsyncFeatures:
    """Ask the program itself. Raises ToolFailed."""
    version = await processes.run(Command(argv=(program, b"--version"), timeout_s=_ASK_TIMEOUT_S))
    usage = await processes.run(Command(argv=(program, b"--help"), timeout_s=_ASK_TIMEOUT_S))
    if version.exit_code != 0:
        raise ToolFailed(f"{show(program)} --version fails: {show(version.stderr)}")
    features = parse_features(version.stdout, usage.stdout)
    if features is None:
        raise ToolFailed(f"{show(program)} is no rsync: it does not tell its version")
    return features
