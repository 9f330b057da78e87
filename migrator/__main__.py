"""The program `migrator`, also as `python -m migrator`: the process around the command line."""

import atexit
import gc

_OBJECTS_BETWEEN_COLLECTIONS = 200_000
"""Above what is made by loading (some 130,000 objects for `run`), so that a short verb never looks for garbage."""


def program() -> None:
    """One call of the program, from the words of the command line to the exit code."""
    # Nearly all that is made while libraries are loaded stays to the end. To look for garbage among it some 200 times,
    # as Python does of itself, and once more at the end takes 60 to 80 ms of the 400 of a verb that has little to do.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)

    from migrator.cli.main import main  # noqa: PLC0415

    main(prog_name="migrator")


if __name__ == "__main__":
    program()
