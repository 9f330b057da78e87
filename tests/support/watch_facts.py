"""A migration in full swing, for the live view; `path` and `text` are in every place where a user's may be."""

from msgspec.structs import replace

from migrator.bricks.add.model import AdditionSide, AdditionStanding, AdditionState
from migrator.bricks.drain.model import DrainStanding, DrainState
from migrator.core.probe import Probe, ProbeSide, ProbeTimes
from migrator.core.states import PassKind, PassState
from migrator.report.model import RunLife, StreamAtWork, WatchFacts
from migrator.transfer.model_governor import Bound, Gate, GoverningFacts, GovernorRecord
from tests.support.facts import AT_S, report
from tests.support.making import made

DRAIN = made(
    DrainStanding,
    id=1,
    bricks=("gl1:/srv/b1/data",),
    state=DrainState.DRAINING,
    since_s=AT_S - 900,
    files=5000,
    size_bytes=2**34,
    moved_files=1234,
    moved_bytes=2**33,
    failures=3,
    files_per_s=2.0,
    bytes_per_s=40.0 * 2**20,
    left_s=7200.0,
    looked_at_s=AT_S - 5,
)

ADDITION = made(
    AdditionStanding,
    id=2,
    side=AdditionSide.SOURCE,
    bricks=("gl2:/srv/b9/data", "gl3:/srv/b9/data"),
    state=AdditionState.BALANCING,
    since_s=AT_S - 90,
    size_bytes=2**40,
    files=900,
    lookups=40,
    looked_at_s=AT_S - 5,
)

PROBES = (
    Probe(
        side=ProbeSide.SOURCE,
        at_s=AT_S - 12,
        times=ProbeTimes(create_s=0.0123, write_s=0.0004, sync_s=0.0031, stat_s=0.0002, unlink_s=0.0009, readdir_s=1.5),
    ),
    Probe(side=ProbeSide.TARGET, at_s=AT_S - 70, waited_s=10.0),
)


GOVERNING = GoverningFacts(
    governor=made(
        GovernorRecord, at_s=AT_S, gate=Gate.OPEN, bound=Bound.THROUGHPUT, streams=3, most=8, hosts=(("gl1", 3),)
    ),
    at_work=True,
)


def stream(number: int, **changed: object) -> StreamAtWork:
    facts: dict[str, object] = {
        "host": "gl1",
        "batch": 1,
        "pass_kind": PassKind.SEED,
        "chunk": 10 + number,
        "tree": b"home/alice",
        "brick": "gl1:/srv/b1/data",
        "size_bytes": 2**30,
        "done_bytes": 2**28,
        "recent_bytes": 30 * 2**20,
        "recent_s": 10.0,
    }
    return made(StreamAtWork, attempt_id=number, **(facts | changed))


def watched(path: bytes = b"home/alice", text: str = "alice") -> WatchFacts:
    status = report(path, text).status
    run = replace(status.runs[0], life=RunLife.AT_WORK, silent_s=2.0)
    assert GOVERNING.governor is not None
    governor = replace(GOVERNING.governor, reason=f"more do not help {text}")
    [batch] = status.batches
    return WatchFacts(
        status=replace(
            status,
            batches=(replace(batch, passes=(replace(batch.passes[0], state=PassState.RUNNING),)),),
            runs=(run,),
            drains=(replace(DRAIN, bricks=(f"gl1:/{text}",)),),
            additions=(ADDITION,),
            probes=PROBES,
            governing=replace(GOVERNING, governor=governor),
        ),
        streams=(
            stream(1, tree=path),
            stream(2, tree=path + b"2", brick=None, host=text, recent_s=0.0),
            stream(3, tree=path, brick=f"gl2:/{text}", host="gl2"),
        ),
        rates=tuple(float(place % 8) * 2**20 for place in range(40)),
        news=status.events,
        last_event=1,
    )
