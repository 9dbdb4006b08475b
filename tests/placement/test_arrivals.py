"""What came lately comes again, with the gaps it came in."""

from itertools import islice, pairwise

from cumulo.placement.arrivals import LEAST, MOST_REMEMBERED, Arrivals
from tests.placement.worlds import ask, waiting


def came(*times):
    arrivals = Arrivals()
    for number, at in enumerate(times):
        arrivals.learn(waiting(f"r{number}", ask("T4"), at=at))
    return arrivals


def test_too_few_say_nothing():
    assert list(came(*range(LEAST - 1)).again(100.0, 0.0, 0.5)) == []


def test_bursts_stay_bursts():
    arrivals = came(*(burst * 1000.0 + each for burst in range(3) for each in range(5)))
    times = [at for at, _ in islice(arrivals.again(3000.0, 0.0, 0.99), 15)]
    gaps = [round(later - sooner) for sooner, later in pairwise(times)]
    assert gaps.count(1) == 12
    assert gaps.count(996) == 2


def test_it_may_begin_anywhere_and_goes_round():
    arrivals = came(*range(20))
    assert [place for _, place in islice(arrivals.again(20.0, 0.5, 0.99), 12)] == [*range(10, 20), 0, 1]
    times = [at for at, _ in islice(arrivals.again(20.0, 0.99, 0.99), 50)]
    assert times == sorted(times)
    assert times[0] >= 20.0


def test_a_stream_that_dried_up_comes_slower():
    arrivals = came(*range(20))
    soon = [at - 20.0 for at, _ in islice(arrivals.again(20.0, 0.0, 0.99), 41)][-1]
    later = [at - 2000.0 for at, _ in islice(arrivals.again(2000.0, 0.0, 0.99), 41)][-1]
    assert later > 2 * soon


def test_only_the_latest_are_remembered():
    assert next(each.name for each in came(*range(MOST_REMEMBERED + 1))) == "r1"


def test_it_goes_on_about_as_long_as_it_has():
    arrivals = came(*range(101))
    assert 195.0 < max(at for at, _ in arrivals.again(100.0, 0.0, 0.5)) <= 200.0
    assert len(list(arrivals.again(100.0, 0.0, 0.9))) > 5 * len(list(arrivals.again(100.0, 0.0, 0.5)))
    assert len(list(arrivals.again(100.0, 0.0, 0.0))) <= 1
