"""The sample plan is one that this version reads and would write."""

from pathlib import Path

from migrator.plan.document import read_document, write_document
from tools.sample_plan import sample_plan

SAMPLE = Path(__file__).parents[2] / "plans" / "sample.json"


def test_the_sample_plan_is_read_and_written_the_same() -> None:
    text = SAMPLE.read_text(encoding="utf-8")
    plan, checksum = read_document(text, name="sample")
    assert write_document(plan) == (text, checksum)
    assert write_document(sample_plan())[0] == text, "write it anew: make docs"
    assert any(b"\xe9" in usage.tree.path for usage in plan.ranking)
