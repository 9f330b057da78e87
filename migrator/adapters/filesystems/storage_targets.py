"""The storage targets of a file system that has none of its own."""


class NoStorageTargets:
    """The `StorageTargets` port of a purge for a file system whose mount is all there is to look at."""

    async def problems(self) -> tuple[str, ...]:
        """None."""
        return ()
