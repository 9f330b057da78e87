"""What a delta pass says of what changed."""

from migrator.delta.delta import change_words
from migrator.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges


def test_what_changed_is_told_by_kind_in_words() -> None:
    kinds = {ChangeKind.REWRITTEN: 11, ChangeKind.ATTRIBUTES: 1, ChangeKind.UNSETTLED: 2000}
    tree = TreeChanges(
        tree=b"home/ann",
        names_before=1,
        bytes_before=1,
        by_kind={kind: ChangeTally(paths=paths) for kind, paths in kinds.items()},
    )
    said = change_words(Changes(base="c1", now="c2", trees=(tree,)))
    assert said == "11 rewritten, 1 with other attributes, 2,000 sent to be sure"
