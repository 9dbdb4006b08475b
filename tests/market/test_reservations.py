from math import inf

from hypothesis import given
from hypothesis import strategies as st

from cumulo.market.reservations import Span, earliest, free

spans = st.lists(
    st.builds(
        lambda since, lasts, count: Span(float(since), since + float(lasts), count),
        st.integers(0, 20),
        st.integers(1, 20) | st.just(inf),
        st.integers(1, 4),
    ),
    max_size=8,
)


def taken_at(several, at):
    return sum(span.gpus for span in several if span.since <= at < span.until)


@given(spans, st.integers(0, 12), st.integers(0, 30), st.integers(1, 20))
def test_what_is_free_is_free_all_the_time_and_no_more_than_that(several, total, since, lasts):
    moments = [since + step / 2 for step in range(2 * lasts)]
    least = min(total - taken_at(several, at) for at in moments)
    assert free(total, several, since=float(since), until=float(since + lasts)) == least


@given(spans, st.integers(1, 8), st.integers(0, 8), st.integers(0, 30), st.integers(1, 20))
def test_the_earliest_time_is_the_first_at_which_it_fits(several, total, count, since, lasts):
    found = earliest(total, several, count=count, term_s=float(lasts), since=float(since))
    fits = [at for at in range(since, 80) if free(total, several, since=float(at), until=float(at + lasts)) >= count]
    assert found == (fits[0] if fits else None)


def test_runs_that_declare_no_end_are_never_out_of_the_way():
    assert earliest(8, [Span(0.0, inf, 5)], count=4, term_s=60.0, since=0.0) is None
    assert earliest(8, [Span(0.0, inf, 4), Span(0.0, 50.0, 1)], count=4, term_s=60.0, since=0.0) == 50.0
