"""What crosses a border as JSON comes back unchanged: run specs into the store, instances to and from engines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.instance import (
    Identity,
    InstanceSpec,
    ObservedInstance,
    instance_id,
    parse_instance_id,
)
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.domain.run import Array, FileMount, PurchaseOption, Retry, RunKind, RunSpec, from_wire, to_wire
from cumulo.domain.sharing import Isolation, SharingMode, Slice, whole_devices

words = st.text(max_size=8)
moments = st.none() | st.floats(0, 4e9)
counts = st.integers(1, 8)


def tuples(of):
    return st.lists(of, max_size=3).map(tuple)


asks = st.builds(
    Ask,
    gpu=st.none()
    | st.builds(
        GpuAsk,
        names=tuples(words),
        count_min=counts,
        count_max=counts,
        memory_min=st.none() | counts,
        milli=st.none() | counts,
        slice_memory=st.none() | counts,
        sharing=st.sampled_from((None, SharingMode.MPS)),
    ),
    isolation=st.sampled_from(Isolation),
    cpus_milli=st.none() | counts,
    memory_bytes=st.none() | st.integers(1, 1 << 50),
    nodes=counts,
)
specs = st.builds(
    RunSpec,
    name=words,
    kind=st.sampled_from(RunKind),
    ask=asks,
    command=words,
    requirements=tuples(words),
    env=st.dictionaries(words, words, max_size=3),
    workdir=st.none() | words,
    file_mounts=tuples(st.builds(FileMount, target=words, manifest=words)),
    mounts=tuples(words),
    array=st.none() | st.builds(Array, first=counts, last=st.integers(8, 99), step=counts, parallel=st.none() | counts),
    priority=st.integers(-9, 9),
    after=tuples(words),
    max_duration_s=moments,
    retry=st.none()
    | st.builds(
        Retry, on_events=st.frozensets(st.sampled_from(("interruption", "error", "lost"))), max_attempts=counts
    ),
    purchase=st.sampled_from(PurchaseOption),
    progress_regex=st.none() | words,
)


@given(specs)
def test_a_run_spec(spec):
    assert from_wire(json.loads(json.dumps(to_wire(spec)))) == spec


def test_a_run_spec_of_an_older_version_gets_the_defaults_of_what_it_lacks():
    written = to_wire(RunSpec(name="old"))
    for name in ("progress_regex", "runtime", "grace_s"):
        kept = {key: value for key, value in written.items() if key != name}
        assert from_wire(json.loads(json.dumps(kept))) == RunSpec(name="old")


identities = st.builds(
    Identity, name=words, uid=st.none() | counts, gid=st.none() | counts, groups=tuples(counts), home=st.none() | words
)
slices = st.builds(
    Slice,
    device_uuid=words,
    mode=st.sampled_from(SharingMode),
    milli=counts,
    memory_bytes=counts,
    profile=words,
    start=st.none() | counts,
)
instance_specs = st.builds(
    InstanceSpec,
    instance_id=words,
    cloud_id=words,
    run_id=words,
    run_name=words,
    project=words,
    unit=counts,
    attempt=counts,
    rank=counts,
    node=words,
    slices=tuples(slices),
    cpus_milli=counts,
    memory_bytes=counts,
    identity=identities,
    command=words,
    requirements=tuples(words),
    env=st.dictionaries(words, words, max_size=3),
    files=tuples(st.tuples(words, words)),
    mounts=tuples(words),
    peers=tuples(words),
    max_duration_s=moments,
    array_index=st.none() | counts,
    hazard=tuples(st.tuples(st.floats(0, 1e6), st.floats(0, 1))),
)


@given(instance_specs)
def test_an_instance_spec(spec):
    assert InstanceSpec.from_wire(json.loads(json.dumps(spec.to_wire()))) == spec


@given(instance_specs)
def test_an_instance_spec_written_before_devices_could_be_shared(spec):
    told = spec.to_wire()
    told["device_uuids"] = [each["device_uuid"] for each in told.pop("slices")]
    del told["hazard"]  # which is younger yet
    assert InstanceSpec.from_wire(told).slices == whole_devices(each.device_uuid for each in spec.slices)


@given(
    st.builds(
        ObservedInstance,
        instance_id=words,
        cloud_id=words,
        state=st.sampled_from(InstanceState),
        node=words,
        started_at=moments,
        ended_at=moments,
        exit_code=st.none() | counts,
        reason=st.none() | st.sampled_from(EndReason),
        message=words,
        slices=st.none() | tuples(slices),
        cpu_seconds=moments,
        progress=st.none() | words,
    )
)
def test_what_an_engine_saw(observed):
    assert ObservedInstance.from_wire(json.loads(json.dumps(observed.to_wire()))) == observed


@given(
    st.from_regex(r"[0-9a-z]{1,12}", fullmatch=True),
    st.integers(0, 10**6),
    st.integers(1, 99),
    st.integers(0, 99),
)
def test_an_instance_id_says_whose_it_is(run_id, unit, attempt, rank):
    assert parse_instance_id(instance_id(run_id, unit, attempt, rank)) == (run_id, unit, attempt, rank)


@pytest.mark.parametrize("text", ["", "a", "a-1-2", "a-x-1-1", "a-1-1-", "a-b-1-1-1"])
def test_what_is_no_instance_id(text):
    with pytest.raises(ValueError, match=r"unpack|invalid literal"):
        parse_instance_id(text)


@pytest.mark.parametrize(
    ("array", "indices", "text"),
    [
        (Array(first=0, last=4), [0, 1, 2, 3, 4], "0-4"),
        (Array(first=3, last=10, step=3), [3, 6, 9], "3-10:3"),
        (Array(first=5, last=5, parallel=2), [5], "5-5%2"),
    ],
)
def test_arrays(array, indices, text):
    assert [array.index(place) for place in range(len(array))] == indices
    assert array.canonical == text
    for place in (-1, len(array)):
        with pytest.raises(IndexError):
            array.index(place)


def test_retries_back_off_to_an_hour_at_most():
    retry = Retry(backoff_s=5.0)
    assert [retry.delay(attempts) for attempts in (1, 2, 3, 99, 10**6)] == [5.0, 10.0, 20.0, 3600.0, 3600.0]
    assert Retry(backoff_s=0.0).delay(10**6) == 0.0
