"""The hooks around the purge of a tree, and the archives of the site that they name."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from migrator.core.errors import Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import join
from migrator.core.units import format_size, several
from migrator.cutover.call import CutoverPlace
from migrator.cutover.model import CutoverRecord
from migrator.hooks.calls import HookedStep, StepHooks
from migrator.hooks.model import HookFacts, HookState, HookStep
from migrator.purge import model, rules
from migrator.purge.call import PurgeCall
from migrator.purge.copies import Answers
from migrator.purge.model import PurgeItem
from migrator.purge.proofs import IndexedProofs


@dataclass(slots=True, kw_only=True)
class TreeHooks:
    """The hooks of one tree. `hooks` is None in a dry run, which calls none. `called`: the `pre` hooks allow the purge."""

    call: PurgeCall
    item: PurgeItem
    hooks: StepHooks | None
    called: bool = False

    async def before(self, record: CutoverRecord, proofs: IndexedProofs | None) -> None:
        """Call the `pre` hooks, and record which archives they named. Raises Refused if too few hold the tree."""
        if self.hooks is None:
            return
        facts, request, ports = self._facts(record), self.call.request, self.call.ports
        if proofs is None or not request.require_archive:
            await self.hooks.before(self._hooked_step(record), facts)
            self.called = True
            return
        directory = ports.scratch.directory / model.ARCHIVES_NAME / record.own_name
        answers = Answers(
            directory=directory.absolute(), tree=record.tree.path, manifests=rules.proofs_named(self.item)
        )
        # Of a call that was killed, or of a job that an earlier one began.
        await self._take(answers, record, proofs)
        algorithms = await asyncio.to_thread(proofs.algorithms)
        await asyncio.to_thread(answers.offer, proofs, self.proven_archives())
        archives = os.fsencode(answers.directory)
        facts = replace(facts, archives=archives, digest=algorithms[0] if len(algorithms) == 1 else None)
        try:
            await self.hooks.before(self._hooked_step(record), facts)
        except Refused:
            # Archives of earlier hooks count although a later one refuses.
            await self._take(answers, record, proofs)
            raise
        self.called = True
        problems = await self._take(answers, record, proofs)
        why = rules.archives_problem(record.tree, self.proven_archives(), problems, required=request.require_archive)
        if why is not None:
            raise Refused(
                why,
                cause="a pre-purge hook has to make an archive, and to give the digests of what it stored",
                hint="fix what the hooks report (docs/hooks.md), then run the same command again: proven archives are kept",
            )
        await asyncio.to_thread(answers.close)

    async def _take(self, answers: Answers, record: CutoverRecord, proofs: IndexedProofs) -> list[str]:
        """Record the archives that hold the tree by their answers, forget those that hooks have lost, and return why others
        do not.
        """
        lost = await asyncio.to_thread(answers.lost, self.proven_archives())
        self.call.ports.ledger.second_copies.remove(lost)
        for one in lost:
            words = f"the archive {one.name} ({one.place}) no longer counts: the hooks have lost it"
            self.call.emit(EventKind.BACKUP_REPORTED, Severity.WARNING, record.tree.user, words)
        whole, problems = await asyncio.to_thread(answers.taken, proofs, now_s=self.call.ports.clock.now_s())
        self.call.ports.ledger.second_copies.add(whole)
        answers.recorded(whole)
        for one in whole:
            more = f", and {several(one.extra, 'other file')}" if one.extra else ""
            held = f"{several(one.files, 'file')}, {format_size(one.size_bytes)}{more}"
            words = f"the archive {one.name} ({one.place}) holds the tree by its digests: {held}"
            self.call.emit(EventKind.BACKUP_REPORTED, Severity.INFO, record.tree.user, words)
        for problem in problems:
            self.call.emit(EventKind.BACKUP_REPORTED, Severity.WARNING, record.tree.user, problem)
        return problems

    def proven_archives(self) -> Sequence[model.SecondCopy]:
        """The archives that hold the tree as its present manifests have it."""
        return self.call.ports.ledger.second_copies.of_tree(self.item.record.tree.path, rules.proofs_named(self.item))

    def _hooked_step(self, record: CutoverRecord) -> HookedStep:
        return CutoverPlace(step=HookStep.PURGE, record=record).hooked

    async def after(self, record: CutoverRecord, state: HookState) -> None:
        """Call the `post` hooks, including those that a killed purge still owes."""
        if self.hooks is None:
            return
        facts, whole = replace(self._facts(record), state=state), record.notes.purge
        if whole is not None:
            facts = replace(facts, files=whole.names, size_bytes=whole.size_bytes)
        await self.hooks.catch_up(self._hooked_step(record), facts)

    def _facts(self, record: CutoverRecord) -> HookFacts:
        ports, manifest = self.call.ports, None if self.item.proof is None else self.item.proof.manifest
        return HookFacts(
            run_id=self.call.run_id or 0,
            plan=record.plan,
            batch=record.batch,
            trees=(record.tree,),
            user=record.tree.user,
            link=record.notes.link,
            old_path=join(ports.source.root, record.tree.path),
            new_path=join(ports.target.root, record.tree.path),
            manifest=None if manifest is None else os.path.abspath(os.fsencode(manifest)),
            started_at_s=ports.clock.now_s(),
        )
