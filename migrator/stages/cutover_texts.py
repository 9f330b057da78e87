"""What hooks are told around the steps of a cutover, with the text for its user."""

from dataclasses import dataclass

from migrator.decide.texts import text_of
from migrator.domain.errors import Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.hooks import HookEvent, HookFacts, HookStage, HookState, HookStep
from migrator.domain.paths import join, show
from migrator.domain.texts import TextFacts, UserText
from migrator.ports.blocking import Blocking
from migrator.ports.texts import Texts
from migrator.stages.hooking import CutoverPlace
from migrator.stages.hooking.world import Say

_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNumbers:
    """What the record of a cutover does not say: the size of the tree, and how it went. `freeze_s` is predicted and `frozen_s`
    measured; where they are None, those of the record count, which are of the way there. `moved` and `reason` are for
    the end: None before it, False where the user stays where he was.
    """

    files: int
    size_bytes: int
    freeze_s: float | None = None
    frozen_s: float | None = None
    moved: bool | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Makes what the hooks of one site are told in one run. `site` is its name; the roots are absolute; without `texts` the
    site has none.
    """

    run_id: int
    site: str
    source_root: bytes
    target_root: bytes
    texts: Texts | None
    blocking: Blocking
    say: Say

    async def facts(
        self, place: CutoverPlace, event: HookEvent, numbers: StepNumbers, *, link: bytes | None
    ) -> HookFacts:
        """What the hooks on one side of a step are told; after it, that it was done. `link` is the path that is switched, None
        where a hook makes the switch.

        Raises Refused where a text cannot be made, and before a freeze also where a later one could not: then nobody is
        told half of it. Not around a thaw, and not after a step, which is done: there it is a warning, and no text.
        """
        about = text_facts(
            self.site, place, numbers, source_root=self.source_root, target_root=self.target_root, link=link
        )
        record = place.record
        return HookFacts(
            run_id=self.run_id,
            plan=record.plan,
            batch=record.batch,
            trees=(record.tree,),
            user=record.tree.user,
            link=link,
            old_path=about.old_path,
            new_path=about.new_path,
            text=await self._text(place, event, about),
            files=numbers.files,
            size_bytes=numbers.size_bytes,
            state=HookState.DONE if event is HookEvent.POST else "",
            started_at_s=record.since_s,
        )

    async def _text(self, place: CutoverPlace, event: HookEvent, about: TextFacts) -> str | None:
        text = text_of(HookStage(step=place.step, event=event))
        if self.texts is None or text is None:
            return None
        try:
            return await made(self.texts, text, about, self.blocking)
        except Refused as error:
            if event is HookEvent.PRE and place.step is not HookStep.THAW:
                raise
            hooked = place.hooked
            when = "before" if event is HookEvent.PRE else "after"
            message = f"{when} {hooked.words} hooks have no text for {place.record.tree.user}: {error.message}"
            self.say(EventKind.TEXT_FAILED, Severity.WARNING, hooked.subject, message)
            return None


async def made(texts: Texts, text: UserText, about: TextFacts, blocking: Blocking) -> str | None:
    """One text; None where the site has no template for it. With the first one the others are looked at too.

    Raises Refused where one cannot be made.
    """

    def make() -> str | None:
        if text is UserText.BEFORE:
            for look in texts.look():
                if look.problem:
                    raise Refused(f"no text can be made of {show(look.path)}: {look.problem}", hint=look.fix)
        return texts.render(text, about)

    try:
        return await blocking(make, timeout_s=_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise Refused(
            f"the texts in {show(texts.directory)} cannot be read: {why}",
            cause="the file system that holds [site] hooks_dir does not answer, or has an error",
            hint="mend it, or name another directory in site.toml; then run the same command again",
        ) from error


def text_facts(
    site: str,
    place: CutoverPlace,
    numbers: StepNumbers,
    *,
    source_root: bytes,
    target_root: bytes,
    link: bytes | None,
) -> TextFacts:
    """What a text can say at a step. A rollback goes from the target to the source."""
    record, path = place.record, place.record.tree.path
    old, new = join(source_root, path), join(target_root, path)
    if place.back:
        old, new = new, old
    return TextFacts(
        site=site,
        user=record.tree.user,
        tree=path,
        old_path=old,
        new_path=new,
        link=link,
        back=place.back,
        files=numbers.files,
        size_bytes=numbers.size_bytes,
        freeze_s=record.predicted_freeze_s if numbers.freeze_s is None and not place.back else numbers.freeze_s,
        frozen_s=record.freeze_s if numbers.frozen_s is None and not place.back else numbers.frozen_s,
        moved=numbers.moved,
        reason=numbers.reason,
    )
