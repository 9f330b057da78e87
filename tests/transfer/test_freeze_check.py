"""What verifying in the freeze is said to cost: near the truth of simulated verifications, and never free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.units import GIB
from migrator.plan.model import ASSUMED_RATE_BYTES_PER_S
from migrator.transfer.rules_convergence import ASSUMED_S_PER_PATH, FIXED_S, TreeToCheck, freeze_check
from migrator.verify.model import VerificationRecord
from tests.support.records import verification

TREE = TreeToCheck(paths=1000, size_bytes=10 * GIB)


def took(elapsed_s: float, *, paths: int, read_bytes: int, carried_bytes: int = 0) -> VerificationRecord:
    return verification(
        started_at_s=1000.0,
        finished_at_s=1000.0 + elapsed_s,
        paths=paths,
        size_bytes=read_bytes + carried_bytes,
        digested_files=paths,
        digested_bytes=read_bytes,
        carried_bytes=carried_bytes,
        manifest=None,
        manifest_digest=None,
    )


def test_without_any_verification_all_has_to_be_read_at_an_assumed_cost() -> None:
    check = freeze_check([], [TREE, TREE])
    assert (check.files, check.size_bytes, check.fixed_s) == (2000, 20 * GIB, FIXED_S)
    assert check.s_per_file == ASSUMED_S_PER_PATH
    assert check.s_per_byte == pytest.approx(1 / ASSUMED_RATE_BYTES_PER_S)


@pytest.mark.parametrize(
    ("tree", "share", "size_bytes"),
    [
        (TreeToCheck(paths=1, size_bytes=1000), 1.0, 1000),
        (TreeToCheck(paths=1, size_bytes=1000, proven_share=1.0), 1.0, 0),
        (TreeToCheck(paths=1, size_bytes=1000, proven_share=0.75), 1.0, 250),
        (TreeToCheck(paths=1, size_bytes=1000, proven_share=1.0, changed_bytes=40), 1.0, 40),
        (TreeToCheck(paths=1, size_bytes=1000, proven_share=0.5, changed_bytes=900), 1.0, 1000),
        (TreeToCheck(paths=1, size_bytes=1000, proven_share=1.0, changed_bytes=9000), 1.0, 9000),
        (TreeToCheck(paths=1, size_bytes=1000, proven_share=0.05), 0.1, 500),
        (TreeToCheck(paths=1, size_bytes=1000, proven_share=1.0), 0.1, 0),
        (TreeToCheck(paths=1, size_bytes=1000), 0.0, 0),
    ],
)
def test_only_what_no_manifest_covers_has_to_be_read(tree: TreeToCheck, share: float, size_bytes: int) -> None:
    check = freeze_check([], [tree], share=share)
    assert check.size_bytes == size_bytes
    assert check.s_per_byte == pytest.approx(share / ASSUMED_RATE_BYTES_PER_S)


def test_slower_verifications_make_it_dearer_but_for_what_they_hardly_had() -> None:
    paths, read_bytes = 1_000_000, 100 * GIB
    assumed_s = paths * ASSUMED_S_PER_PATH + read_bytes / ASSUMED_RATE_BYTES_PER_S
    check = freeze_check([took(FIXED_S + 3 * assumed_s, paths=paths, read_bytes=read_bytes)], [])
    assert check.s_per_file == pytest.approx(3 * ASSUMED_S_PER_PATH)
    assert check.s_per_byte == pytest.approx(3 / ASSUMED_RATE_BYTES_PER_S)
    carried = took(FIXED_S + 3 * paths * ASSUMED_S_PER_PATH, paths=paths, read_bytes=0, carried_bytes=read_bytes)
    assert freeze_check([carried], []).s_per_byte == pytest.approx(1 / ASSUMED_RATE_BYTES_PER_S)


@given(
    st.lists(
        st.tuples(st.floats(-10.0, 1e6), st.integers(0, 10**8), st.integers(0, 10**15)).map(
            lambda one: took(one[0], paths=one[1], read_bytes=one[2])
        ),
        max_size=6,
    )
)
def test_no_record_makes_it_free_or_endless(records: list[VerificationRecord]) -> None:
    check = freeze_check(records, [TREE])
    assert ASSUMED_S_PER_PATH / 100 <= check.s_per_file <= ASSUMED_S_PER_PATH * 100
    assert 0.01 / ASSUMED_RATE_BYTES_PER_S <= check.s_per_byte * 1.000001 <= 100.001 / ASSUMED_RATE_BYTES_PER_S
