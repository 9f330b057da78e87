"""What hooks are told around the steps of a cutover: real templates, real hooks, a real ledger."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.adapters.executors.threads import DaemonThreads
from migrator.adapters.hooks.texts import TextTemplates
from migrator.domain.errors import Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.hooks import HookEvent, HookFacts, HookStep
from migrator.stages.cutover_texts import StepNumbers, Telling
from tests.run_world import in_loop
from tests.step_hooks import HookedCutover, hooked_cutover

SAMPLES = Path(__file__).parents[2] / "hooks" / "texts"
NUMBERS = StepNumbers(files=1200, size_bytes=3 << 30)
MOVED = StepNumbers(files=1200, size_bytes=3 << 30, frozen_s=65.0, moved=True)
STAYED = StepNumbers(files=1200, size_bytes=3 << 30, frozen_s=65.0, moved=False, reason="a file is still open")
LINK = b"/home/alice"
PRE, POST = HookEvent.PRE, HookEvent.POST


@dataclass
class Told:
    """A cutover whose hooks write down the text that they get."""

    cutover: HookedCutover
    telling: Telling

    @property
    def texts(self) -> Path:
        return self.cutover.hooks_dir / "texts"

    async def facts(
        self, step: HookStep, event: HookEvent, numbers: StepNumbers = NUMBERS, *, back: bool = False
    ) -> HookFacts:
        return await self.telling.facts(self.cutover.place(step, back=back), event, numbers, link=LINK)

    async def step(self, step: HookStep, before: StepNumbers, after: StepNumbers, *, stoppable: bool = True) -> None:
        """One step with its hooks, as a cutover makes it."""

        async def work() -> None:
            self.cutover.did(step.value)

        async def then(_: HookFacts, __: None) -> HookFacts:
            return await self.facts(step, POST, after)

        await self.cutover.calling.around(
            self.cutover.place(step).hooked,
            work,
            facts=await self.facts(step, PRE, before),
            after=then,
            stoppable=stoppable,
        )


@pytest.fixture
def told(scratch: Path) -> Iterator[Told]:
    (scratch / "hooks").mkdir()
    shutil.copytree(SAMPLES, scratch / "hooks" / "texts")
    with hooked_cutover(scratch) as cutover:

        def say(kind: EventKind, severity: Severity, subject: str, message: str) -> None:
            cutover.said.append((kind, severity, subject, message))

        yield Told(
            cutover,
            Telling(
                run_id=cutover.run_id,
                site="site",
                source_root=b"/src",
                target_root=b"/dst",
                texts=TextTemplates(os.fsencode(scratch / "hooks")),
                blocking=DaemonThreads(),
                say=say,
            ),
        )


@in_loop
async def test_every_side_of_every_step_has_its_text(told: Told) -> None:
    told.cutover.hook("pre-freeze.d/10-a")
    for stage in ("post-freeze", "pre-switch", "post-switch", "pre-thaw", "post-thaw"):
        told.cutover.hook(f"{stage}.d/10-a")
    await told.step(HookStep.FREEZE, NUMBERS, NUMBERS)
    await told.step(HookStep.SWITCH, NUMBERS, NUMBERS)
    await told.step(HookStep.THAW, NUMBERS, MOVED, stoppable=False)
    subjects = [line for line in told.cutover.calls() if ".d/" in line]
    wait = "site: please wait, your files are being moved"
    assert subjects == [
        "pre-freeze.d/10-a alice::site: your files move to the new file system",
        f"post-freeze.d/10-a alice:done:{wait}",
        f"pre-switch.d/10-a alice::{wait}",
        f"post-switch.d/10-a alice:done:{wait}",
        f"pre-thaw.d/10-a alice::{wait}",
        "post-thaw.d/10-a alice:done:site: your files have moved",
    ]
    assert told.cutover.warnings() == []


@in_loop
async def test_the_facts_are_those_of_the_way_and_of_the_way_back(told: Told) -> None:
    there = await told.facts(HookStep.FREEZE, PRE)
    assert (there.user, there.link, there.old_path, there.new_path) == (
        "alice",
        LINK,
        b"/src/home/alice",
        b"/dst/home/alice",
    )
    assert (there.plan, there.batch, there.files, there.size_bytes) == ("plan", 1, 1200, 3 << 30)
    assert there.text is not None
    assert "for about 1 min" in there.text  # as the record predicts
    back = await told.facts(HookStep.FREEZE, PRE, back=True)
    assert (back.old_path, back.new_path) == (there.new_path, there.old_path)
    assert back.text is not None
    assert "go back to the old file system" in back.text
    assert "for about" not in back.text  # what was predicted is of the way there
    end = await told.facts(HookStep.THAW, POST, STAYED)
    assert end.text is not None
    assert "a file is still open" in end.text
    assert (await told.facts(HookStep.PURGE, PRE)).text is None


@in_loop
async def test_a_template_that_cannot_be_used_stops_the_freeze_and_never_a_thaw(told: Told) -> None:
    (told.texts / "after-cutover.txt").write_text("{{ surname }}")
    with pytest.raises(Refused, match=r"after-cutover\.txt.*surname"):
        await told.facts(HookStep.FREEZE, PRE)
    assert (await told.facts(HookStep.THAW, POST, MOVED)).text is None
    (warning,) = told.cutover.warnings()
    assert warning.startswith("text-failed: alice: cutover: after the thaw of alice hooks have no text for alice")
    (told.texts / "at-cutover.txt").write_text("{{ surname }}")
    with pytest.raises(Refused, match="surname"):
        await told.facts(HookStep.SWITCH, PRE)
    for step, event in ((HookStep.FREEZE, POST), (HookStep.SWITCH, POST), (HookStep.THAW, PRE)):
        assert (await told.facts(step, event)).text is None
        assert len(told.cutover.warnings()) == 1


@in_loop
async def test_a_site_without_templates_has_no_texts(told: Told) -> None:
    shutil.rmtree(told.texts)
    assert (await told.facts(HookStep.FREEZE, PRE)).text is None
    assert told.cutover.warnings() == []
