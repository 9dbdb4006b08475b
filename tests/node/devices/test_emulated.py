import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.catalog.kinds import all_kinds
from cumulo.domain.ask import AskError
from cumulo.domain.node import DeviceHealth, Node
from cumulo.domain.quantities import GIB
from cumulo.node.devices.emulated import DeviceUse, EmulatedBackend, EmulationError, parse_emulation
from cumulo.node.devices.protocol import DeviceBackend, DeviceProcess


def shapes(spec: str) -> list[list[str]]:
    return [[device.model for device in node.devices] for node in parse_emulation(spec)]


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        ("A100-80GB:8", [["A100-80GB"] * 8]),
        ("T4", [["T4"]]),
        ("2x H100-80GB:8,T4:1", [["H100-80GB"] * 8, ["H100-80GB"] * 8, ["T4"]]),
        ("A100-80GB:2+T4:2", [["A100-80GB", "A100-80GB", "T4", "T4"]]),
        ("2x cpu", [[], []]),
        ("none", [[]]),
        (" 2 x rtx 4090 : 2 , CPU ", [["RTX4090"] * 2, ["RTX4090"] * 2, []]),
        ("2x4090", [["RTX4090"], ["RTX4090"]]),
    ],
)
def test_nodes_as_written(spec: str, nodes: list[list[str]]) -> None:
    assert shapes(spec) == nodes


def test_sizes_are_declared_per_gpu() -> None:
    big, small, cpu = parse_emulation("A100-80GB:8,T4,cpu")
    assert (big.name, big.cpus_milli, big.memory_bytes) == ("emulated-0", 128_000, 1024 * GIB)
    assert (small.name, small.cpus_milli, small.memory_bytes) == ("emulated-1", 16_000, 128 * GIB)
    assert (cpu.name, cpu.cpus_milli, cpu.memory_bytes) == ("emulated-2", 16_000, 128 * GIB)
    assert all(node.emulated for node in (big, small, cpu))


def test_devices_say_that_they_are_emulated_and_keep_their_uuids() -> None:
    spec = "2x A100-80GB:2"
    devices = [device for node in parse_emulation(spec) for device in node.devices]
    assert all(device.emulated and device.uuid.startswith("GPU-EMULATED-") for device in devices)
    assert len({device.uuid for device in devices}) == 4
    assert [device.index for device in devices] == [0, 1, 0, 1]
    assert [device.memory_bytes for device in devices] == [80 * GIB] * 4
    assert parse_emulation(spec) == parse_emulation(spec)
    assert parse_emulation("T4")[0].devices[0].uuid != parse_emulation("L4")[0].devices[0].uuid


def test_a_device_can_be_shared_as_its_kind_can() -> None:
    (node,) = parse_emulation("H100-80GB+T4+MI300X")
    assert [[str(mode) for mode in device.modes] for device in node.devices] == [
        ["exclusive", "mig", "mps", "timeslice"],
        ["exclusive", "mps", "timeslice"],
        ["exclusive", "timeslice"],
    ]


@pytest.mark.parametrize(
    ("spec", "wrong", "words"),
    [
        ("", "", "a GPU is missing here"),
        ("T4:1,,L4", "", "a GPU is missing here"),
        ("T4,", "", "a GPU is missing here"),
        ("2x", "", "a GPU is missing here"),
        ("T4+", "", "a GPU is missing here"),
        (":3", "", "a GPU is missing here"),
        ("T4:1, A100-81GB:8", "A100-81GB", "did you mean A100-40GB or A100-80GB?"),
        ("zebra", "zebra", "no GPU 'zebra' is known; `cumulo gpus` lists what is known"),
        ("A100:8", "A100", "comes in several sizes; write A100-40GB or A100-80GB"),
        ("8", "8", "a count needs a GPU before it"),
        ("T4:0", "0", "0 GPUs in one node: must be 1 to 64"),
        ("T4:65", "65", "65 GPUs in one node: must be 1 to 64"),
        ("T4:40+L4:40", "L4:40", "more than 64 GPUs in one node"),
        ("T4:-1", "-1", "the count must be a whole number"),
        ("T4:1.5", "1.5", "the count must be a whole number"),
        ("T4:²", "²", "the count must be a whole number"),
        pytest.param(f"T4:{'9' * 5000}", "9" * 5000, "the count must be a whole number", id="a very long count"),
        ("T4:", "", "the count must be a whole number"),
        ("T4:1:2", "2", "write GPU:COUNT"),
        ("0x T4", "0", "0 nodes: must be 1 to 1000"),
        ("1001x T4", "1001", "1001 nodes: must be 1 to 1000"),
        ("600x T4,600x cpu", "600x cpu", "more than 1000 emulated nodes in all"),
        ("cpu:3", "cpu", "it stands alone and takes no count"),
        ("T4+cpu", "cpu", "it stands alone and takes no count"),
    ],
)
def test_an_error_points_at_the_wrong_part(spec: str, wrong: str, words: str) -> None:
    with pytest.raises(EmulationError) as caught:
        parse_emulation(spec)
    assert words in caught.value.message
    assert spec[caught.value.start : caught.value.end] == wrong
    assert caught.value.pointed().count("\n") == 2


@given(st.text(alphabet="AT104xX:+, GBcpuH-8*0", max_size=30))
def test_any_text_is_read_or_refused_with_a_place(spec: str) -> None:
    try:
        nodes = parse_emulation(spec)
    except AskError as error:
        wrong = error
    else:
        assert len({node.name for node in nodes}) == len(nodes) > 0
        return
    assert 0 <= wrong.start <= wrong.end <= len(spec)


SHAPE = st.one_of(
    st.just("cpu"),
    st.lists(st.tuples(st.sampled_from([k.name for k in all_kinds()]), st.integers(1, 8)), min_size=1, max_size=4).map(
        lambda items: "+".join(f"{name}:{count}" for name, count in items)
    ),
)


@given(st.lists(st.tuples(st.integers(1, 4), SHAPE), min_size=1, max_size=4))
def test_groups_are_read_one_after_the_other(groups: list[tuple[int, str]]) -> None:
    spec = ",".join(f"{times}x {shape}" for times, shape in groups)
    assert shapes(spec) == [shapes(shape)[0] for times, shape in groups for _ in range(times)]


def backend(spec: str, usage: dict[str, DeviceUse] | None = None) -> tuple[Node, DeviceBackend]:
    (node,) = parse_emulation(spec)
    return node, EmulatedBackend(node, lambda: usage or {})


def test_the_backend_shows_the_node_it_was_given() -> None:
    node, devices = backend("A100-80GB:2+T4")
    assert tuple(info.device for info in devices.devices()) == node.devices
    assert [info.raw_name for info in devices.devices()] == ["emulated A100-80GB"] * 2 + ["emulated T4"]
    assert [info.mig_enabled for info in devices.devices()] == [False, False, None]
    assert {info.device.health for info in devices.devices()} == {DeviceHealth.OK}
    assert (devices.name, devices.unavailable(), devices.warnings()) == ("emulated", None, ())
    assert (devices.driver(), devices.shared_files()) == (None, ())
    assert all(info.device_files == () for info in devices.devices())
    devices.close()


def test_an_idle_device_uses_nothing_and_knows_no_temperature() -> None:
    node, devices = backend("T4")
    (telemetry,) = devices.telemetry().values()
    reading = telemetry.reading
    assert (reading.uuid, reading.memory_used_bytes, reading.utilisation) == (node.devices[0].uuid, 0, 0.0)
    assert (reading.temperature_c, reading.power_w) == (None, None)
    assert (telemetry.processes, telemetry.emulated) == ((), True)


def test_telemetry_follows_what_the_holder_uses() -> None:
    (node,) = parse_emulation("T4:2")
    held, idle = node.devices
    usage: dict[str, DeviceUse] = {}
    devices = EmulatedBackend(node, lambda: usage)
    process = DeviceProcess(pid=42, memory_bytes=3 * GIB)
    usage[held.uuid] = DeviceUse(memory_bytes=3 * GIB, cpu_fraction=0.5, processes=(process,))
    telemetry = devices.telemetry()
    assert telemetry[held.uuid].reading.memory_used_bytes == 3 * GIB
    assert telemetry[held.uuid].reading.utilisation == 0.5
    assert telemetry[held.uuid].processes == (process,)
    assert telemetry[idle.uuid].reading.memory_used_bytes == 0


@pytest.mark.parametrize(("fraction", "shown"), [(1.7, 1.0), (-0.1, 0.0), (0.25, 0.25)])
def test_utilisation_is_capped_and_memory_past_the_device_is_shown(fraction: float, shown: float) -> None:
    uuid = parse_emulation("T4")[0].devices[0].uuid
    _, devices = backend("T4", {uuid: DeviceUse(memory_bytes=99 * GIB, cpu_fraction=fraction)})
    reading = devices.telemetry()[uuid].reading
    assert (reading.utilisation, reading.memory_used_bytes) == (shown, 99 * GIB)
