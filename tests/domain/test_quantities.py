"""Amounts as people write them and as they are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.quantities import (
    GIB,
    MAX_MEMORY,
    MIB,
    NANO,
    format_cpus,
    format_duration,
    format_memory,
    format_usd,
    parse_cpus,
    parse_duration,
    parse_memory,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16", 16 * GIB),
        (24, 24 * GIB),
        (1.5, 3 * GIB // 2),
        ("16GB", 16 * GIB),
        ("16 GiB", 16 * GIB),
        ("16g", 16 * GIB),
        ("512MiB", 512 * MIB),
        ("1.5TB", 1536 * GIB),
        ("64K", 64 << 10),
    ],
)
def test_memory(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "16XB", "0", "0.0GB", "1e3GB", "nan", "9" * 400, "٣GB", "16GB\n1"])
def test_what_is_no_amount_of_memory(text):
    with pytest.raises(ValueError, match="memory"):
        parse_memory(text)


@given(st.integers(1024, MAX_MEMORY // 2))
def test_memory_as_shown_is_near_what_it_is(size):
    assert parse_memory(format_memory(size)) == pytest.approx(size, rel=0.06)


@given(st.integers(1, 1 << 20))
def test_whole_sizes_are_shown_exactly(whole):
    assert parse_memory(format_memory(whole * GIB)) == whole * GIB
    assert whole >= 4096 or parse_memory(format_memory(whole * MIB)) == whole * MIB


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        (45, 45),
        ("90s", 90),
        ("30m", 1800),
        ("1.5h", 5400),
        ("1d12h", 129600),
        ("1h30m", 5400),
        ("2H", 7200),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1x", "1h 30", "0", "-5s", "1h-5m", "9999d", "9" * 400, "nan", "inf", 1e10])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.2s"),
        (4, "4s"),
        (59.9, "59s"),
        (125, "2m 05s"),
        (12000, "3h 20m"),
        (187200, "2d 4h"),
    ],
)
def test_durations_as_shown(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("text", "milli"), [("4", 4000), ("0.5", 500), ("4+", 4000), (2, 2000), (0.25, 250)])
def test_cpus(text, milli):
    assert parse_cpus(text) == milli


@pytest.mark.parametrize("text", ["", "four", "0", "-1", "nan", "inf", "1e9", "0.0001"])
def test_what_is_no_number_of_cpus(text):
    with pytest.raises(ValueError, match="CPUs"):
        parse_cpus(text)


@given(st.integers(1, 999_999))
def test_cpus_as_shown_are_read_back(milli):
    assert parse_cpus(format_cpus(milli)) == milli


@pytest.mark.parametrize(
    ("nano", "text"),
    [(0, "$0.00"), (1, "$0.0000"), (4_200_000, "$0.0042"), (1_270_000_000, "$1.27"), (1234 * NANO, "$1,234.00")],
)
def test_money(nano, text):
    assert format_usd(nano) == text
