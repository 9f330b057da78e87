"""Reports of bricks of this machine, by the compiled program as it is built for tests."""

from migrator.gluster.reports import BrickReports
from migrator.hosts.ports import Host
from tests.support.native_builds import placing
from tests.support.one_host import OneHost


def brick_reports() -> BrickReports:
    """This machine has every host's bricks."""

    async def place(host: Host) -> bytes:
        return await placing(host)()

    return BrickReports(OneHost(), place)
