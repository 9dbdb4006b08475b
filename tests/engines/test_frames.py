"""Values and frames that cross a pipe come out as they went in."""

import io
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.check import Check
from cumulo.domain.instance import Identity, InstanceSpec, Observation, ObservedInstance
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.domain.node import Device, Node
from cumulo.engines.frames import Broken, decode, encode, read_frame, write_frame
from cumulo.engines.protocol import ExecRequest, FilesRequest, PortRequest, Readings, StreamRequest

KINDS = [
    Check, Device, ExecRequest, FilesRequest, Identity, InstanceSpec, Node, Observation, ObservedInstance, PortRequest,
    Readings,
]  # fmt: skip


@given(st.sampled_from(KINDS).flatmap(st.from_type))
def test_what_the_protocol_speaks_of_crosses_unchanged(value):
    assert decode(type(value), encode(value)) == value


@given(st.sampled_from([ExecRequest, FilesRequest, PortRequest]).flatmap(st.from_type))
def test_a_union_is_told_by_its_fields(request):
    assert decode(StreamRequest, encode(request)) == request


@given(st.one_of(st.none(), st.frozensets(st.text())))
def test_sets_and_nothing_cross(value):
    assert decode(frozenset[str] | None, encode(value)) == value


def test_an_observation_keeps_its_words():
    seen = ObservedInstance(instance_id="a", cloud_id="c", state=InstanceState.ENDED, reason=EndReason.LOST)
    told = decode(Observation, encode(Observation(instances=(seen,), complete=True, as_of=1.5)))
    assert told.instances[0].reason is EndReason.LOST
    assert {field.name for field in fields(told)} == {"instances", "complete", "as_of"}


JSON: Any = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.integers(), max_size=3)


@given(st.lists(st.tuples(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.binary()), max_size=4))
def test_frames_come_out_as_they_went_in(frames):
    pipe = io.BytesIO()
    for head, data in frames:
        write_frame(pipe, head, data)
    pipe.seek(0)
    assert [read_frame(pipe) for _ in frames] == frames
    assert read_frame(pipe) is None


@given(st.binary(max_size=40), st.integers(1, 60))
def test_an_end_in_the_middle_is_no_end(data, cut):
    pipe = io.BytesIO()
    write_frame(pipe, {"x": 1}, data)
    whole = pipe.getvalue()
    with pytest.raises(Broken):
        read_frame(io.BytesIO(whole[: max(1, len(whole) - cut)]))


def test_another_protocol_is_found_out():
    with pytest.raises(Broken, match="another protocol"):
        read_frame(io.BytesIO(b"HTTP/1.1 200 OK\r\n\r\n"))
