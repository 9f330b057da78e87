"""Texts for users: the samples, and templates that cannot be used, as files."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.adapters.hooks.texts import TextTemplates
from migrator.decide.texts import EXAMPLES
from migrator.domain.errors import Refused
from migrator.domain.texts import TEMPLATE_LIMIT_BYTES, TextFacts, UserText
from tests.cli_site import Site

SAMPLES = Path(__file__).parents[2] / "hooks" / "texts"
MOVED = next(facts for facts in EXAMPLES if facts.moved and facts.link and not facts.back)
STAYED = next(facts for facts in EXAMPLES if facts.moved is False and facts.link and not facts.back)


@pytest.fixture
def texts(scratch: Path) -> TextTemplates:
    (scratch / "texts").mkdir()
    return TextTemplates(os.fsencode(scratch))


def put(texts: TextTemplates, template: str | bytes, text: UserText = UserText.AT) -> Path:
    path = Path(os.fsdecode(texts.directory), os.fsdecode(text.file))
    path.write_bytes(template if isinstance(template, bytes) else template.encode())
    path.chmod(0o644)
    return path


def test_the_samples_are_the_templates_there_are() -> None:
    assert sorted(path.name for path in SAMPLES.iterdir()) == sorted(os.fsdecode(text.file) for text in UserText)


@pytest.mark.parametrize("facts", EXAMPLES)
@pytest.mark.parametrize("text", UserText)
def test_the_samples_say_something_right_of_all_facts(texts: TextTemplates, text: UserText, facts: TextFacts) -> None:
    put(texts, (SAMPLES / os.fsdecode(text.file)).read_bytes(), text)
    told = texts.render(text, facts)
    assert told is not None
    subject, blank, body = told.split("\n", 2)
    assert subject.startswith("gl-to-beegfs: ")
    assert blank == ""
    assert body.startswith("Dear alice,\n")
    assert "\n\n\n" not in told
    assert "None" not in told
    assert " \n" not in told
    if text is UserText.AFTER:
        assert ("You can work again" in told) == bool(facts.moved)
        assert ("Nothing is lost" in told) == (not facts.moved)
        assert facts.reason in told
    if text is UserText.BEFORE:
        assert ("2026-01-01 19:00 UTC" in told) == (facts.begins_at_s is not None)
        assert ("go back" in subject) == facts.back


def test_a_user_is_told_where_his_files_are(texts: TextTemplates) -> None:
    put(texts, (SAMPLES / "after-cutover.txt").read_bytes(), UserText.AFTER)
    moved, stayed = texts.render(UserText.AFTER, MOVED), texts.render(UserText.AFTER, STAYED)
    assert moved is not None
    assert stayed is not None
    assert "your files are in /mnt/beegfs/home/alice now" in moved
    assert "Go on by the same path as before: /home/alice" in moved
    assert "have not moved" in stayed.split("\n")[0]
    assert "(a file is still open), so your files stay\nwhere they were, in /mnt/gl/home/alice" in stayed


def test_names_are_data_and_no_markup(texts: TextTemplates) -> None:
    put(texts, "{{ user }} {{ tree }}\n")
    told = texts.render(UserText.AT, replace(MOVED, user="{{ site }}<b>&", tree=b"home/{% raw %}\n"))
    assert told == "{{ site }}<b>& home/{% raw %}\\x0a\n"


def test_without_a_template_there_is_no_text(texts: TextTemplates, scratch: Path) -> None:
    assert texts.render(UserText.AT, MOVED) is None
    assert [look.there for look in texts.look()] == [False] * 3
    assert TextTemplates(os.fsencode(scratch / "none")).render(UserText.AT, MOVED) is None


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("Dear {{ usr }}", "unknown names: usr"),
        ("{% if back %}{{ usr }}{% endif %}", "unknown names: usr"),
        ("{{ user.nothing }}", "nothing"),
        ("line\n{% if %}", "line 2"),
        ("{% include 'other' %}", "no loader"),
        ("{{ user.__class__.__mro__ }}", "unsafe"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ user + 1 }}", "str"),
        ("{% for one in range(1000000000) %}x{% endfor %}", "too big"),
        (b"\xff", "not UTF-8"),
        ("x" * (TEMPLATE_LIMIT_BYTES + 1), "more than 64 KiB"),
    ],
)
def test_what_cannot_be_rendered_is_refused_and_told_beforehand(
    texts: TextTemplates, template: str | bytes, says: str
) -> None:
    put(texts, template)
    with pytest.raises(Refused) as caught:
        texts.render(UserText.AT, MOVED)
    assert says in caught.value.message
    assert caught.value.hint
    (look,) = [look for look in texts.look() if look.text is UserText.AT]
    assert says in look.problem
    assert look.fix


@pytest.mark.needs_root
def test_templates_that_others_can_change_are_refused(texts: TextTemplates, scratch: Path) -> None:
    path = put(texts, "text")
    for at, mode in ((path, 0o666), (path.parent, 0o777), (path.parent, 0o1777), (scratch, 0o777)):
        before = at.stat().st_mode
        at.chmod(mode)
        with pytest.raises(Refused, match="can be written by others"):
            texts.render(UserText.AT, MOVED)
        at.chmod(before)
    os.chown(path, 1001, 0)
    with pytest.raises(Refused, match="belongs to uid 1001"):
        texts.render(UserText.AT, MOVED)
    path.unlink()
    path.symlink_to(SAMPLES / "at-cutover.txt")
    with pytest.raises(Refused, match="cannot be read"):
        texts.render(UserText.AT, MOVED)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Refused, match="is a fifo"):
        texts.render(UserText.AT, MOVED)


def test_doctor_tells_of_texts(scratch: Path) -> None:
    site = Site(scratch, scratch / "source", scratch / "target")
    site.source.mkdir()
    site.target.mkdir()
    site.write()
    assert "texts" not in site.call("doctor").stdout
    shutil.copytree(SAMPLES, scratch / "hooks" / "texts")
    (scratch / "hooks").chmod(0o755)
    assert "before-cutover.txt, at-cutover.txt, after-cutover.txt" in site.call("doctor", "--json").stdout
    (scratch / "hooks" / "texts" / "at-cutover.txt").write_text("{{ usr }}")
    assert "unknown names: usr" in site.call("doctor", "--json").stdout
