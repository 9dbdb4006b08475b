"""What is learnt of spot from this cloud's own attempts, as they end and as the store has them."""

import pytest

from cumulo.control.hazards import AT_ONCE_S, CALM_S, SpotHistory, pool_of
from cumulo.control.prices import Pool
from cumulo.domain.run import PurchaseOption
from cumulo.market.hazards import learn, shipped_priors
from cumulo.store import picture
from tests.control.fakes import GPU, Clock, Cloud, FakeEngine, node

SPOT = PurchaseOption.SPOT
POOL = Pool("local", GPU)


@pytest.fixture
def cloud(quick_db, tmp_path):
    """A node of 4 GPUs."""
    return Cloud(quick_db, tmp_path, engine=FakeEngine(Clock(), (node("one"),))).ready()


def history(cloud):
    return cloud.loop.deadlines.history


def again(cloud):
    """What a server that starts now knows."""
    known = SpotHistory(shipped_priors())
    with cloud.db.read() as tx:
        known.remember(picture.spot_attempts(tx, 100))
    return known


def preempted(cloud, after_s):
    """A spot run that lasts so long, and waits for as long again before it comes back."""
    run_id, _ = cloud.launch("A100:4", name="spot", purchase=SPOT, grace_s=0.0)
    cloud.clock.pass_(after_s)
    hog = cloud.submit("A100:4", name="hog")
    cloud.look(2)
    cloud.engine.start(cloud.instances_of(hog)[0])
    cloud.clock.pass_(after_s)
    cloud.look()
    cloud.engine.end(cloud.instances_of(hog)[0])
    cloud.look(2)
    [again] = cloud.instances_of(run_id)
    cloud.engine.start(again)
    cloud.look()
    return again


def test_without_history_a_pool_is_as_pools_are():
    known = SpotHistory(shipped_priors())
    assert known.hazards(POOL) == learn((), shipped_priors())
    assert (known.version(POOL), known.calm_s(POOL, 5.0)) == (0, CALM_S)


def test_lives_and_waits_are_learnt_from(cloud):
    before = history(cloud).hazards(POOL)
    for _ in range(6):
        cloud.engine.end(preempted(cloud, 300.0))
        cloud.look()
    after = history(cloud).hazards(POOL)
    assert history(cloud).counts() == {POOL: 24}, "each waited twice, was lost once, and ended once by itself"
    assert after.up(300.0) > 3 * before.up(300.0)
    assert after.down(300.0) > 2 * before.down(300.0)
    assert 0.0 < history(cloud).calm_s(POOL, cloud.clock()) < 900.0, "since the last was lost"
    assert history(cloud).version(POOL) > 20


def test_a_server_that_starts_knows_the_same(cloud):
    for seconds in (100.0, 700.0, 30.0):
        preempted(cloud, seconds)
        for name in cloud.engine.alive():
            cloud.engine.end(name)
        cloud.look()
    known = again(cloud)
    assert known.counts() == history(cloud).counts()
    mine, theirs = known.hazards(POOL), history(cloud).hazards(POOL)
    assert mine.lost.per_s == pytest.approx(theirs.lost.per_s)
    assert mine.back.per_s == pytest.approx(theirs.back.per_s)
    now = cloud.clock()
    assert known.calm_s(POOL, now) == pytest.approx(history(cloud).calm_s(POOL, now))
    assert known.calm_s(POOL, now - 2000.0) == pytest.approx(history(cloud).calm_s(POOL, now - 2000.0))


def test_what_ends_by_itself_was_not_lost(cloud):
    before = history(cloud).hazards(POOL)
    for _ in range(5):
        _, name = cloud.launch("A100:4", name="spot", purchase=SPOT)
        cloud.clock.pass_(3600.0)
        cloud.engine.end(name)
        cloud.look()
    assert history(cloud).hazards(POOL).up(1000.0) < before.up(1000.0)
    assert history(cloud).calm_s(POOL, cloud.clock()) == CALM_S


def test_who_runs_on_demand_says_nothing_of_spot(cloud):
    _, name = cloud.launch("A100:4", name="plain")
    cloud.clock.pass_(3600.0)
    cloud.engine.end(name)
    cloud.look()
    assert history(cloud).counts() == {}
    assert again(cloud).counts() == {}


def test_a_start_at_once_was_no_wait(cloud):
    known = SpotHistory(shipped_priors())
    known.waited(POOL, AT_ONCE_S / 2, came=True)
    assert known.counts() == {}
    known.waited(POOL, 2 * AT_ONCE_S, came=False)
    assert known.counts() == {POOL: 1}


def test_a_gang_counts_once(quick_db, tmp_path):
    cloud = Cloud(quick_db, tmp_path).ready()
    _, *names = cloud.launch("A100:4", name="gang", nodes=2, purchase=SPOT)
    assert {pool_of(each) for each in cloud.seen.instances.values()} == {POOL}
    for name in names:
        cloud.engine.end(name)
    cloud.look()
    assert len(names) == 2
    assert history(cloud).counts() == {POOL: 2}, "it waited once, and lasted once"
