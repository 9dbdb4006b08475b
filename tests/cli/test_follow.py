"""A run's log as it is printed: attempts and sources told apart."""

import io
from dataclasses import replace

from cumulo.cli.follow import LogWriter
from cumulo.cli.phrases import progress_more
from cumulo.client.answers.logs import LogText
from cumulo.client.answers.runs import Progress


def printed(*pieces, prefixed=False):
    out = io.BytesIO()
    writer = LogWriter(out, prefixed)
    for attempt, source, text in pieces:
        writer.write(LogText(attempt=attempt, source=source, text=text))
    writer.close()
    return out.getvalue().decode()


def test_a_line_stands_between_attempts():
    told = printed((1, "rank 0", "one\n"), (1, "rank 0", "two"), (2, "rank 0", "three\n"), (2, "rank 0", "four\n"))
    assert told == "one\ntwo\n[cumulo: attempt 2]\nthree\nfour\n"


def test_a_log_of_one_attempt_is_as_it_is():
    assert printed((3, "rank 0", "no end"), (3, "rank 0", " of line")) == "no end of line"


def test_each_source_has_its_own_attempts():
    told = printed((1, "5", "a"), (1, "6", "b\n"), (2, "5", "c\n"), prefixed=True)
    assert told == "[6] b\n[5] a\n[5] [cumulo: attempt 2]\n[5] c\n"


def test_a_bar_that_goes_back_says_so():
    again = Progress(done=30.0, total=100.0, fraction=0.3, furthest=50.0, per_s=2.0)
    assert progress_more(again) == "had come to 50 before, 2/s"
    assert progress_more(replace(again, furthest=30.0)) == "2/s"
