"""Names that are safe in a terminal, a path and a shell; ids that sort by time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.names import check_name, is_id, make_id, name_from, printable


@pytest.mark.parametrize("name", ["a", "train", "train-1", "a.b_c-9", "0", "x" * 63])
def test_names(name):
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "A", "-a", "a-", ".", "..", "a/b", "a b", "a\n", "a\x1b[1m", "é", "x" * 64, "٣", "a\0"]
)
def test_what_is_no_name_is_told_without_acting_on_the_terminal(name):
    with pytest.raises(ValueError, match="can't be a name") as refused:
        check_name(name)
    assert "\x1b" not in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.text())
def test_from_any_text_a_name_can_be_made(text):
    assert check_name(name_from(text))


@given(st.text(), st.integers(1, 50))
def test_what_is_printable_cannot_act_on_a_terminal(text, limit):
    safe = printable(text, limit)
    assert safe.isprintable()
    assert len(safe) <= limit


times = st.floats(0, 2**35 - 1, allow_nan=False)


@given(times, st.binary(min_size=4, max_size=16))
def test_ids(at, random):
    made = make_id(at, random)
    assert is_id(made)
    assert make_id(at, random) == made


@given(times, times, st.binary(min_size=4, max_size=4), st.binary(min_size=4, max_size=4))
def test_ids_sort_by_the_second(first, second, one, other):
    earlier, later = sorted((first, second))
    if int(earlier) < int(later):
        assert make_id(earlier, one) < make_id(later, other)


@pytest.mark.parametrize("text", ["", "x" * 12 + "y", "ilou00000000", "ABCDEFGHJKMN", "train"])
def test_what_is_no_id(text):
    assert not is_id(text)
