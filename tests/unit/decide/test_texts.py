"""What users are told, and at which stage."""

from dataclasses import replace

import pytest

from migrator.decide.texts import EXAMPLES, check_texts, template_problem, text_of, text_words, unknown_names
from migrator.domain.entry import EntryType
from migrator.domain.finding import FindingStatus
from migrator.domain.hooks import FileLook, all_stages
from migrator.domain.texts import TextLook, UserText

FACTS = EXAMPLES[0]
WAY = (
    FileLook(path=b"/", type=EntryType.DIRECTORY, uid=0, mode=0o755),
    FileLook(path=b"/texts", type=EntryType.DIRECTORY, uid=0, mode=0o755),
)
FILE = FileLook(path=b"/texts/at", type=EntryType.FILE, uid=0, mode=0o644)


def test_every_stage_about_a_user_has_its_text() -> None:
    texts = {stage.name: text for stage in all_stages() if (text := text_of(stage)) is not None}
    assert texts == {
        "pre-announce": UserText.BEFORE,
        "post-announce": UserText.BEFORE,
        "pre-freeze": UserText.BEFORE,
        "post-freeze": UserText.AT,
        "pre-switch": UserText.AT,
        "post-switch": UserText.AT,
        "pre-thaw": UserText.AT,
        "post-thaw": UserText.AFTER,
    }


def test_words_are_for_people_and_on_one_line() -> None:
    words = text_words(
        replace(
            FACTS,
            user="eve\nBcc: all",
            tree=b"home/\xe9\n\x1b[31m",
            reason="a file\nis \u202eopen",
            begins_at_s=0.0,
            freeze_s=240.0,
            frozen_s=None,
        )
    )
    assert words["user"] == "eve\\x0aBcc: all"
    assert words["tree"] == "home/\\xe9\\x0a\\x1b[31m"
    assert words["reason"] == "a file\\x0ais \\xe2\\x80\\xaeopen"
    assert (words["begins"], words["freeze"], words["frozen"]) == ("1970-01-01 00:00 UTC", "4 min", None)
    assert (words["files"], words["size"]) == ("9,000,000", "12.0 TiB")


def test_examples_are_of_every_kind() -> None:
    kinds = {(facts.back, facts.moved, facts.link is None, facts.begins_at_s is None) for facts in EXAMPLES}
    assert len(kinds) == len(EXAMPLES) == 12


def test_unknown_names_are_told_with_the_known_ones() -> None:
    assert unknown_names(["user", "link"]) is None
    told = unknown_names(["user", "usr", "Size"])
    assert told is not None
    assert told.startswith("unknown names: Size, usr; there are site, user, tree")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"uid": 7}, "belongs to uid 7"),
        ({"mode": 0o664}, "written by others"),
        ({"mode": 0o646}, "written by others"),
        ({"type": EntryType.SYMLINK}, "is a symlink"),
        ({"type": EntryType.FIFO}, "is a fifo"),
    ],
)
def test_templates_that_others_could_have_written_are_not_used(change: dict[str, object], says: str) -> None:
    assert template_problem(WAY, FILE, 0) is None
    problem = template_problem(WAY, replace(FILE, **change), 0)  # type: ignore[arg-type]
    assert problem is not None
    assert says in problem.message
    assert problem.fix
    open_directory = (WAY[0], replace(WAY[1], mode=0o1777))
    assert template_problem(open_directory, FILE, 0) is not None


def test_findings() -> None:
    there = TextLook(text=UserText.AT, path=b"/hooks/texts/at-cutover.txt", there=True)
    missing = TextLook(text=UserText.AFTER, path=b"/hooks/texts/after-cutover.txt", there=False)
    (good,) = check_texts([there, missing], b"/hooks/texts")
    assert (good.status, good.message) == (FindingStatus.OK, "at-cutover.txt in /hooks/texts")
    assert check_texts([missing], b"/hooks/texts")[0].message == "none in /hooks/texts"
    (bad,) = check_texts([replace(there, problem="at is wrong", fix="mend it"), missing], b"/hooks/texts")
    assert (bad.status, bad.message, bad.fix) == (FindingStatus.FAILURE, "at is wrong", "mend it")
