"""Every error that can be made to happen, judged on the real thing."""

import os
from pathlib import Path

import pytest

from tests.conftest import MakeXfs
from tests.support.streams import Streams, engine_of, make_trees, rsync_programs
from tests.transfer.rsync_errors import SCENARIOS, TREE, World, matches, record

pytestmark = pytest.mark.needs_root

_RECORD_VARIABLE = "MIGRATOR_RECORD_RSYNC"


@pytest.mark.parametrize("program", rsync_programs())
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_an_error_is_judged(name: str, program: str, scratch: Path, make_xfs: MakeXfs) -> None:
    scenario, expected = SCENARIOS[name]
    source_root = scratch / "source"
    target = make_xfs(size_bytes=32 << 20, max_inodes=640) if name == "no_room" else make_xfs()
    source, target_tree = make_trees(source_root, target.path, tree=TREE)
    engine = engine_of(program)
    world = World(Streams(engine, source_root, target.path), source, target_tree)
    ran = scenario(world)
    if directory := os.environ.get(_RECORD_VARIABLE):
        record(Path(directory) / engine.features.version_text, name, ran)
    outcome = ran.outcome
    detail = (ran.completed.exit_code, ran.stderr, outcome)
    assert outcome.verdict is expected.verdict, detail
    assert outcome.stop is expected.stop, detail
    assert matches(outcome.suspects, expected), detail
