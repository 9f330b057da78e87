"""Plan documents: the same plan is the same text, what was edited is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.entry import UserTree
from migrator.core.errors import Refused, UsageError
from migrator.plan.document import FORMAT, read_document, write_document
from migrator.plan.model import Plan, Surprise, SurpriseKind
from tests.support.plans import small_plan

ODD = b'home/\xff\n%41"\\\x1b'


def plan() -> Plan:
    batch = small_plan().batches[0]
    return replace(
        small_plan("spring"),
        created_at_s=1_800_000_000.25,
        size_bytes=2**60,
        batches=(replace(batch, trees=(UserTree(path=ODD, user="ali\N{LATIN SMALL LETTER C WITH CEDILLA}e"),)),),
        surprises=(
            Surprise(kind=SurpriseKind.QUOTA, tree=None, count=1, size_bytes=5, detail="limit", examples=(ODD, b"")),
        ),
        emptying=(),
    )


def edited(change: Callable[[dict[str, Any]], object]) -> str:
    content = json.loads(write_document(plan())[0])
    change(content)
    return json.dumps(content)


def sealed(change: Callable[[dict[str, Any]], object]) -> str:
    """A document with another content and a checksum that is right."""
    from migrator.plan.document import _checksum

    content = json.loads(write_document(plan())[0])
    change(content)
    del content["checksum"]
    return json.dumps({**content, "checksum": _checksum(content)})


def test_a_plan_is_read_as_it_was_written() -> None:
    text, checksum = write_document(plan())
    assert read_document(text, name="spring", site_id=plan().site_id) == (plan(), checksum)
    # The layout of the text is not its content.
    assert read_document(edited(lambda _: None), name="spring") == (plan(), checksum)
    # A key that a later version added with a default may be missing.
    read, _ = read_document(sealed(lambda content: content["target"].pop("read_only")), name="spring")
    assert read.target.read_only is False
    with pytest.raises(Refused, match="says that it is plan 'spring'"):
        read_document(text, name="autumn")


@given(st.binary(), st.text(), st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**70))
def test_any_path_name_and_number_survives(path: bytes, user: str, seconds: float, count: int) -> None:
    one = replace(
        plan(), batches=(replace(plan().batches[0], trees=(UserTree(path=path, user=user),), forecast_s=seconds),)
    )
    one = replace(one, files=count, created_at_s=seconds)
    text, _ = write_document(one)
    assert read_document(text, name="spring")[0] == one
    assert text.isascii()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(files=13),
        lambda content: content["batches"][0].update(fits=False),
        lambda content: content["batches"][0].update(chunk_list_digest="cd" * 32),
        lambda content: content.update(checksum="0" * 64),
        lambda content: content.pop("checksum"),
        lambda content: content.update(note="by hand"),
        lambda content: content["batches"].clear(),
    ],
)
def test_a_plan_that_was_edited_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(Refused, match="checksum") as caught:
        read_document(edited(change), name="spring")
    assert "migrator plan" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        (write_document(plan())[0][:-20], "no JSON"),
        ("[]", "no object"),
        ("{}", "no format"),
        (edited(lambda content: content.update(format="1")), "no format"),
        (edited(lambda content: content.update(format=FORMAT + 1)), f"reads up to {FORMAT}"),
        (sealed(lambda content: content.update(extra=1)), "unknown key 'extra'"),
        (sealed(lambda content: content.pop("batches")), "lacks 'batches'"),
        (sealed(lambda content: content.update(files="many")), "plan.files has type str"),
        (sealed(lambda content: content.update(files=True)), "plan.files has type bool"),
        (sealed(lambda content: content.update(order="sideways")), "sideways"),
        (sealed(lambda content: content.update(batches=5)), "no list"),
        (sealed(lambda content: content["batches"].append(5)), r"batches\[1\] is no object"),
        (sealed(lambda content: content["surprises"][0].update(examples=[5])), "no path"),
    ],
)
def test_what_is_no_plan_of_this_version_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_document(text, name="spring")
    assert caught.value.hint
