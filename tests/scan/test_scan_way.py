"""May the bricks be read, and which of them?"""

from dataclasses import replace

import pytest

from migrator.gluster.model import Brick, BrickHeal, BrickRules, VolumeState
from migrator.gluster.rules import brick_rules, subvolumes
from migrator.scan.rules import choose_way, reasons_against_bricks, task_changes


def brick(host: str, number: int = 1, *, online: bool | None = True, arbiter: bool = False) -> Brick:
    path = f"/srv/b{number}"
    return Brick(name=f"{host}:{path}", host=host, path=path.encode(), online=online, arbiter=arbiter)


def volume(*bricks: Brick, replica_count: int = 1, **changes: object) -> VolumeState:
    state = VolumeState(
        volume="vol1",
        volume_id="f9855758-fe85-4982-b480-bec8dcb39254",
        type="Distribute",
        started=True,
        bricks=bricks,
        options=(("nfs.disable", "on"), ("transport.address-family", "inet")),
        tasks=(),
        replica_count=replica_count,
        heals=tuple(BrickHeal(brick=brick.name, status="Connected", entries=0) for brick in bricks),
        peers_down=(),
    )
    return replace(state, **changes)  # type: ignore[arg-type]


DISTRIBUTE = volume(*(brick(f"h{host}", number) for number in (1, 2) for host in (1, 2, 3)))
COPIED = volume(
    *(brick(f"h{host}", number) for number in (1, 2) for host in (1, 2, 3)),
    replica_count=3,
    type="Distributed-Replicate",
)
HOSTS = ("h1", "h2", "h3")


def test_a_quiet_distributed_volume_is_read_from_all_its_bricks() -> None:
    way = choose_way(DISTRIBUTE, reachable=HOSTS)
    assert (way.reasons, way.bricks, way.rules) == ((), DISTRIBUTE.bricks, brick_rules(DISTRIBUTE))
    for value, kept in (("enable", True), ("off", False), ("no", False)):
        state = replace(DISTRIBUTE, options=(("features.ctime", value),))
        assert brick_rules(state) == BrickRules(times_from_mdata=kept, distributed=True)
    one_set = replace(COPIED, bricks=COPIED.bricks[:3])
    assert [brick_rules(state).distributed for state in (DISTRIBUTE, COPIED, one_set)] == [True, True, False]


def test_of_copies_a_reachable_one_is_read_and_the_hosts_share_the_work() -> None:
    assert [len(bricks) for bricks in subvolumes(COPIED)] == [3, 3]
    for reachable in (HOSTS, ("h2", "h3")):
        bricks = choose_way(COPIED, reachable=reachable, unreachable={"h1": "host h1 cannot be reached"}).bricks
        assert [brick in copies for brick, copies in zip(bricks, subvolumes(COPIED), strict=True)] == [True, True]
        assert len({brick.host for brick in bricks} & set(reachable)) == 2


def test_of_copies_one_that_is_down_or_no_whole_set_is_a_reason() -> None:
    for online in (False, None):
        bricks = (replace(COPIED.bricks[0], online=online), *COPIED.bricks[1:])
        reasons = choose_way(replace(COPIED, bricks=bricks), reachable=HOSTS).reasons
        assert any("h1:/srv/b1" in reason for reason in reasons)
    (reason,) = choose_way(replace(COPIED, bricks=COPIED.bricks[:4]), reachable=HOSTS).reasons
    assert "sets of 3" in reason


def test_an_arbiter_is_never_read() -> None:
    state = volume(brick("h1"), brick("h2"), brick("h3", arbiter=True), replica_count=3, type="Replicate")
    assert choose_way(state, reachable=["h2", "h3"]).bricks == (state.bricks[1],)
    (reason,) = choose_way(state, reachable=["h3"]).reasons
    assert "h1:/srv/b1 or h2:/srv/b1" in reason
    assert "h3" not in reason


def test_a_host_that_is_not_reached_or_not_named_is_a_reason() -> None:
    reasons = choose_way(DISTRIBUTE, reachable=["h1"], unreachable={"h2": "host h2 cannot be reached"}).reasons
    assert len(reasons) == 4
    assert sum("host h2 cannot be reached" in reason for reason in reasons) == 2
    assert sum('[source.hosts."h3"]' in reason for reason in reasons) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"started": False}, "not started"),
        ({"disperse_count": 3, "type": "Disperse"}, "dispersed"),
        ({"type": "Distributed-Disperse"}, "dispersed"),
        ({"stripe_count": 2}, "striped"),
        ({"type": "Striped-Replicate"}, "striped"),
        ({"type": "Tier"}, "tiered"),
        ({"options": (("features.shard", "on"),)}, "sharded"),
        ({"options": (("features.encryption", "enable"),)}, "encrypted"),
        ({"options": (("encryption.block-size", "4096"),)}, "encryption.block-size"),
        ({"options": (("network.compression", "on"),)}, "network.compression"),
        ({"options": (("cluster.dht-xattr-name", "trusted.mine"),)}, "cluster.dht-xattr-name"),
        ({"options": (("features.trash", "on"),)}, "features.trash"),
        ({"options": (("features.next-year", "42"),)}, "features.next-year (42)"),
        ({"options": (("features.ctime", "maybe"),)}, "features.ctime"),
        ({"tasks": ("Rebalance (in progress)",)}, "Rebalance"),
        ({"tasks": ("Remove brick (completed) of h1:/srv/b1",)}, "waits for its commit"),
        ({"peers_down": ("h2",)}, "h2"),
        ({"peers_down": None}, "is not known"),
        ({"heals": None}, "is not known"),
    ],
)
def test_whatever_changes_what_a_brick_holds_is_a_reason(changes: dict[str, object], said: str) -> None:
    way = choose_way(replace(DISTRIBUTE, **changes), reachable=HOSTS)  # type: ignore[arg-type]
    assert way.bricks == ()
    assert any(said in reason for reason in way.reasons), way.reasons


@pytest.mark.parametrize(
    ("heal", "said"),
    [
        (BrickHeal(brick="h1:/srv/b1", status="Connected", entries=2), "2 entries"),
        (BrickHeal(brick="h1:/srv/b1", status="Connected", entries=None), "not known"),
        (BrickHeal(brick="h1:/srv/b1", status="Transport endpoint is not connected", entries=None), "Transport"),
    ],
)
def test_heals_that_are_due_or_unknown_are_reasons(heal: BrickHeal, said: str) -> None:
    assert COPIED.heals is not None
    (reason,) = reasons_against_bricks(replace(COPIED, heals=(heal, *COPIED.heals[1:])))
    assert said in reason
    (missing,) = reasons_against_bricks(replace(COPIED, heals=COPIED.heals[1:]))
    assert "1 bricks" in missing


def test_a_task_that_came_and_went_is_told_by_its_id() -> None:
    before = replace(DISTRIBUTE, task_ids=("a",))
    assert task_changes(before, replace(before, task_ids=())) == ()
    assert task_changes(before, replace(before, task_ids=("a", "b")))
