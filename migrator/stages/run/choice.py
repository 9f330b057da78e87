"""Which plan is meant where none is named."""

from migrator.domain.errors import UsageError
from migrator.domain.states import PassState
from migrator.ports.ledger import Ledger


def latest_plan(ledger: Ledger) -> str:
    """The plan that was recorded last. Raises UsageError where there is none."""
    latest = ledger.plans.latest()
    if latest is None:
        raise UsageError("there is no plan yet", hint="run `migrator scan`, then `migrator plan`")
    return latest.name


def choose_plan(ledger: Ledger, name: str | None) -> str:
    """The plan that was named, or else the latest. Raises UsageError where there is none, and where a pass of an older
    one is half done: the same command goes on where it was, and must not begin anew because somebody planned meanwhile.
    """
    if name is not None:
        return name
    latest = latest_plan(ledger)
    for older in ledger.plans.names():
        halves = [record.batch for record in ledger.passes.of_plan(older) if record.state is not PassState.DONE]
        if older != latest and halves:
            raise UsageError(
                f"batch {halves[0]} of plan {older} is half copied, and {latest} was made since then",
                cause="a new plan was made before the run of the older one had ended",
                hint=f"give --plan {older} to go on where it was, or --plan {latest} to begin with the new one",
            )
    return latest
