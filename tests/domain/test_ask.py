"""The little language of GPU asks: what each form means, that it prints itself back, and where it says it is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.ask import MAX_GPUS, Ask, AskError, GpuAsk, parse_gpu_ask
from cumulo.domain.quantities import GIB, MIB


@pytest.mark.parametrize(
    ("text", "ask"),
    [
        ("A100:8", GpuAsk(names=("A100",), count_min=8, count_max=8)),
        ("8:A100", GpuAsk(names=("A100",), count_min=8, count_max=8)),
        ("A100", GpuAsk(names=("A100",))),
        ("8", GpuAsk(count_min=8, count_max=8)),
        ("24GB..", GpuAsk(memory_min=24 * GIB)),
        ("..80gb:2", GpuAsk(memory_max=80 * GIB, count_min=2, count_max=2)),
        ("16 GiB", GpuAsk(memory_min=16 * GIB, memory_max=16 * GIB)),
        (
            "A100,H100:40GB..:2..4",
            GpuAsk(names=("A100", "H100"), memory_min=40 * GIB, count_min=2, count_max=4),
        ),
        ("..4", GpuAsk(count_min=1, count_max=4)),
        ("2..", GpuAsk(count_min=2, count_max=MAX_GPUS)),
        ("H100:0.25", GpuAsk(names=("H100",), milli=250)),
        ("H100:.5", GpuAsk(names=("H100",), milli=500)),
        ("0.5000", GpuAsk(milli=500)),
        ("H100:mig-1g.10gb:2", GpuAsk(names=("H100",), mig_profile="1g.10gb", count_min=2, count_max=2)),
        ("MIG-1G.5GB+ME", GpuAsk(mig_profile="1g.5gb+me")),
        ("RTX 4090 : 2", GpuAsk(names=("RTX 4090",), count_min=2, count_max=2)),
        ("4090:2", GpuAsk(names=("4090",), count_min=2, count_max=2)),
        ("A100,A100", GpuAsk(names=("A100",))),
        ("4090,4090", GpuAsk(names=("4090",))),
    ],
)
def test_what_is_read(text, ask):
    assert parse_gpu_ask(text) == ask
    assert parse_gpu_ask(ask.canonical) == ask


@pytest.mark.parametrize(
    ("text", "wrong", "says"),
    [
        ("", "", "empty"),
        ("   ", "   ", "empty"),
        ("A100::8", "", "part is missing"),
        ("A100:", "", "part is missing"),
        ("A100:8:4", "4", "count is given twice"),
        ("A100:H100", "H100", "name is given twice"),
        ("A100:0", "0", "at least 1 GPU"),
        ("A100:4..2", "4..2", "the range is empty"),
        ("80GB..40GB", "80GB..40GB", "the range is empty"),
        ("A100:1000..", "1000..", "more than"),
        ("A100:123456", "123456", "more than"),
        ("A100:-1", "-1", "neither a GPU name"),
        ("A100:two words!", "two words!", "neither a GPU name"),
        ("A100, ,H100", "", "neither a GPU name"),
        ("A100,H$00:2", "H$00", "neither a GPU name"),
        ("A100:0.0", "0.0", "in thousandths"),
        ("A100:0.9999", "0.9999", "in thousandths"),
        ("A100:0.5:2", "A100:0.5:2", "of one GPU"),
        ("A100:0.5:mig-1g.5gb", "A100:0.5:mig-1g.5gb", "of one GPU"),
        ("A100:mig-huge", "mig-huge", "not a MIG profile"),
        ("A100:0GB", "0GB", "more than nothing"),
        ("0.1MB", "0.1MB", "in MiB at least"),
        (f"{'9' * 300}GB", f"{'9' * 300}GB", "less than an exabyte"),
        ("A100\n:8", "A100\n", ""),
    ],
)
def test_an_error_points_at_the_wrong_part(text, wrong, says):
    if not says:  # blanks around a part do not matter
        assert parse_gpu_ask(text) == parse_gpu_ask(text.replace("\n", ""))
        return
    with pytest.raises(AskError) as refused:
        parse_gpu_ask(text)
    error = refused.value
    assert error.text[error.start : error.end] == wrong
    assert says in error.message
    lines = error.pointed().splitlines()
    assert len(lines) == 3
    assert lines[2].strip("^ ") == ""
    assert len(lines[2]) - 2 == max(error.end, error.start + 1)


def test_a_long_ask_is_refused_as_such_and_not_repeated():
    with pytest.raises(AskError) as refused:
        parse_gpu_ask("A100," * 10_000)
    assert "at most 400 characters" in str(refused.value)
    assert len(str(refused.value)) < 200


def test_what_is_pointed_at_cannot_act_on_a_terminal():
    with pytest.raises(AskError) as refused:
        parse_gpu_ask("A100:\x1b[2J!:8")
    assert "\x1b" not in refused.value.pointed()
    assert refused.value.pointed().splitlines()[2] == " " * 7 + "^" * 5


memories = st.integers(1, 4096).map(lambda gib: gib * GIB) | st.integers(1, 1 << 20).map(lambda mib: mib * MIB)
names = st.lists(
    st.from_regex(r"[A-Za-z][A-Za-z0-9+-]{0,12}", fullmatch=True).filter(
        lambda name: not name.lower().startswith("mig-")
    )
    | st.sampled_from(("4090", "3090Ti", "RTX A6000", "1080 Ti")),
    max_size=3,
    unique=True,
).map(tuple)


@st.composite
def gpu_asks(draw):
    counts = sorted(draw(st.tuples(st.integers(1, MAX_GPUS), st.integers(1, MAX_GPUS))))
    limits = sorted(draw(st.tuples(memories, memories)))
    milli = draw(st.none() | st.integers(1, 999))
    return GpuAsk(
        names=draw(names),
        count_min=1 if milli else counts[0],
        count_max=1 if milli else counts[1],
        memory_min=limits[0] if draw(st.booleans()) else None,
        memory_max=limits[1] if draw(st.booleans()) else None,
        milli=milli,
        mig_profile=None if milli else draw(st.sampled_from((None, "1g.10gb", "3g.20gb", "1g.5gb+me"))),
    )


@given(gpu_asks())
def test_what_is_printed_is_read_back(ask):
    assert parse_gpu_ask(ask.canonical) == ask


@given(gpu_asks(), st.randoms(use_true_random=False))
def test_the_order_of_the_parts_does_not_matter(ask, random):
    parts = ask.canonical.split(":")
    random.shuffle(parts)
    assert parse_gpu_ask(" : ".join(parts)) == ask


def read_or_refused(text):
    try:
        return parse_gpu_ask(text)
    except AskError as error:
        return error


@given(st.text(max_size=30) | st.text(alphabet="A1h0.:,gGbBmM ..-28٠", max_size=20))
def test_whatever_is_typed_is_read_or_refused_in_words(text):
    ask = read_or_refused(text)
    if isinstance(ask, AskError):
        assert 0 <= ask.start <= ask.end <= len(text)
        assert ask.message
        assert ask.pointed()
    else:
        assert parse_gpu_ask(ask.canonical) == ask
        assert 1 <= ask.count_min <= ask.count_max <= MAX_GPUS


@pytest.mark.parametrize(
    ("ask", "gib", "admitted"),
    [("16GB..", 15, True), ("16GB..", 14, False), ("..16GB", 16.3, True), ("..16GB", 24, False), ("80GB", 79, True)],
)
def test_sizes_are_those_printed_on_boards(ask, gib, admitted):
    assert parse_gpu_ask(ask).admits_memory(int(gib * GIB)) is admitted


def test_an_ask_in_one_line():
    gpu = parse_gpu_ask("A100:8")
    assert Ask(gpu=gpu, cpus_milli=16_000, memory_bytes=64 * GIB, nodes=2).describe() == (
        "2 nodes x A100:8, 16 CPUs, 64GB"
    )
    assert Ask(cpus_milli=500).describe() == "no GPU, 0.5 CPUs"
    assert Ask(gpu=parse_gpu_ask("1")).describe() == "1 GPU"
    assert Ask(gpu=parse_gpu_ask("2")).describe() == "2 GPUs"
