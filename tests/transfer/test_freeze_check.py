"""What verifying in the freeze is said to cost: near the truth of simulated verifications, and never free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.units import GIB, MIB
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


@given(
    s_per_path=st.floats(1e-5, 1e-2),
    rate=st.floats(10 * MIB, 2 * GIB),
    paths=st.integers(100_000, 10_000_000),
    mean_bytes=st.integers(100_000, 1_000_000),
)
def test_both_costs_are_found_where_verifications_differ(
    s_per_path: float, rate: float, paths: int, mean_bytes: int
) -> None:
    read = took(FIXED_S + paths * s_per_path + paths * mean_bytes / rate, paths=paths, read_bytes=paths * mean_bytes)
    carried = took(FIXED_S + paths * s_per_path, paths=paths, read_bytes=0, carried_bytes=paths * mean_bytes)
    check = freeze_check([read, carried], [])
    least = max(FIXED_S + paths * s_per_path, 0.0)
    if least >= 2 * FIXED_S:
        assert check.s_per_file == pytest.approx(s_per_path, rel=0.01)
        assert check.s_per_byte == pytest.approx(1 / rate, rel=0.01)


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
