"""Which files a program of some machine is made of."""

from collections.abc import Awaitable, Callable

from migrator.adapters.executors import elf
from migrator.domain.errors import ToolFailed
from migrator.domain.paths import show
from migrator.ports.processes import Command, Processes

_HEAD_BYTES = 1 << 16
_LOADER_TIMEOUT_S = 30.0
_LOADER_CACHE = b"/etc/ld.so.cache"

ReadHead = Callable[[bytes, int], Awaitable[bytes]]


async def program_files(program: bytes, *, processes: Processes, read_head: ReadHead) -> tuple[bytes, ...]:
    """The program, its loader, its libraries, and the loader's cache; a static program stands alone.

    `read_head` gives so many bytes of the beginning of a file there, and raises OSError. Raises ToolFailed.
    """
    try:
        loader = elf.interpreter(await read_head(program, _HEAD_BYTES))
    except OSError as error:
        raise ToolFailed(
            f"{show(program)} cannot be read: {error.strerror}",
            cause="the program is not installed",
            hint="install it; `migrator doctor` lists what is needed",
        ) from error
    except ValueError as error:
        raise ToolFailed(f"{show(program)} cannot be confined: {error}", cause="it is a script") from error
    if loader is None:
        return (program,)
    listing = await processes.run(Command(argv=(loader, b"--list", program), timeout_s=_LOADER_TIMEOUT_S))
    if listing.exit_code != 0:
        raise ToolFailed(f"the libraries of {show(program)} cannot be listed: {show(listing.stderr)}")
    try:
        libraries = elf.libraries(listing.stdout)
    except ValueError as error:
        raise ToolFailed(f"{show(program)} cannot run: {error}", hint="install the library") from error
    try:
        await read_head(_LOADER_CACHE, 1)
    except OSError:
        cache: tuple[bytes, ...] = ()
    else:
        cache = (_LOADER_CACHE,)  # where it exists, libraries in unusual places are found through it
    return tuple(dict.fromkeys((program, loader, *libraries, *cache)))
