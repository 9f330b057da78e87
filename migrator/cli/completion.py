"""Completion of users, batches, plans and bricks, from the ledger and the newest catalog of the bricks.

It reads only, and any error means that there is nothing to complete.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from migrator.cli.global_options import GlobalOptions

if TYPE_CHECKING:
    from migrator.app import Wiring
    from migrator.app.ledger import MigrationLedger

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_Names = Callable[["Wiring", "MigrationLedger", str | None], Iterable[tuple[str, str]]]


def _completion(read: _Names) -> Completion:
    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # Loaded here because verbs that run do not need it.
        from migrator.cli.call import open_wiring  # noqa: PLC0415

        logging.disable(logging.CRITICAL)
        try:
            wiring = open_wiring(GlobalOptions(site_file=context.find_root().params["site_file"]))
            with wiring.ledger(read_only=True) as ledger:
                plan = context.params.get("plan_name") or next(reversed(ledger.plans.activated()), None)
                found = dict(read(wiring, ledger, plan))
        except Exception:  # noqa: BLE001 - a shell has no place for messages while it completes
            return []
        finally:
            logging.disable(logging.NOTSET)
        # A name with an unprintable character cannot be typed, and a line feed would be two names.
        return [
            CompletionItem(name, help=words or None)
            for name, words in found.items()
            if name.startswith(incomplete) and name.isprintable()
        ]

    return complete


def _users(_: "Wiring", ledger: "MigrationLedger", plan: str | None) -> Iterable[tuple[str, str]]:
    return sorted((tree.tree.user, "") for tree in ledger.plans.trees(plan)) if plan else ()


def _batches(_: "Wiring", ledger: "MigrationLedger", plan: str | None) -> Iterable[tuple[str, str]]:
    record = ledger.plans.read(plan) if plan else None
    return [(str(number), state.value) for number, state in record.batches.items()] if record else ()


def _plans(_: "Wiring", ledger: "MigrationLedger", __: str | None) -> Iterable[tuple[str, str]]:
    active = ledger.plans.active()
    return [(name, "active" if active and active.name == name else "") for name in reversed(ledger.plans.names())]


def _bricks(wiring: "Wiring", ledger: "MigrationLedger", _: str | None) -> Iterable[tuple[str, str]]:
    from migrator.catalog.files import CLOSING_RECORD, read_record  # noqa: PLC0415

    catalog = ledger.scans.of_bricks()
    walks = () if catalog is None else read_record(wiring.site.catalogs_dir / catalog.name / CLOSING_RECORD)[0].bricks
    drained = [(brick, drain.state.value) for drain in ledger.drains.all() for brick in drain.bricks]
    return [*((walk.brick, "") for walk in walks), *drained]


complete_users = _completion(_users)
complete_batches = _completion(_batches)
complete_plans = _completion(_plans)
complete_bricks = _completion(_bricks)
