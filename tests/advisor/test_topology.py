"""What a ring of GPUs gets: NVLink inside a node, the NICs of its members between nodes."""

from dataclasses import replace

import pytest

from cumulo.advisor.topology import Links, all_reduce_seconds, typical_cluster
from cumulo.catalog.kinds import GpuKind, find

LINKS = Links(fabric_share=1.0, nic_share=1.0)


def cluster(name, gpus=16):
    kind: GpuKind = find(name)[0]
    return typical_cluster(kind.variants[0], kind.architecture, memory_bytes=kind.memory_bytes, gpus=gpus)


def test_inside_a_node_a_ring_gets_one_direction_of_nvlink():
    assert LINKS.ring(cluster("H100-80GB"), 8, 1) == 450e9


def test_between_nodes_a_ring_uses_the_nics_of_all_its_members():
    h100 = cluster("H100-80GB")
    assert LINKS.ring(h100, 16, 1) == 8 * 50e9
    assert LINKS.ring(h100, 16, 4) == 2 * 50e9
    assert LINKS.ring(h100, 2, 8) == 50e9


def test_nics_never_make_a_ring_faster_than_nvlink():
    assert LINKS.ring(replace(cluster("H100-80GB"), nic_bytes_s=400e9), 16, 1) == 450e9


def test_an_nvl72_rack_is_one_node():
    assert cluster("GB200").gpus_per_node == 72
    assert LINKS.ring(cluster("GB200"), 64, 1) == 900e9


def test_bridged_pcie_boards_count_as_pcie():
    found = cluster("A100-80GB")
    pcie = next(each for each in find("A100-80GB")[0].variants if each.form_factor == "PCIe Dual-slot")
    boards = replace(found, variant=pcie)
    assert found.has_fabric
    assert not boards.has_fabric
    assert boards.fabric_bytes_s == pytest.approx(1.97e9 * 16)


def test_a_token_goes_once_to_each_node_that_wants_it():
    h100 = cluster("H100-80GB")
    inside = LINKS.exchange_seconds(h100, 8, copies=4, payload=450e9)
    assert inside == pytest.approx(4 * 7 / 8)
    one = LINKS.exchange_seconds(h100, 64, copies=1, payload=50e9)
    assert one == pytest.approx(7 / 8 + 7 / 8 * 50 / 450)
    many = LINKS.exchange_seconds(h100, 64, copies=1000, payload=50e9) - 1000 * 7 / 8 * 50 / 450
    assert many == pytest.approx(7)  # each of the other nodes once, however many experts it has
    assert LINKS.exchange_seconds(cluster("GB200", 64), 64, copies=8, payload=1e9) < 0.01


def test_an_all_reduce_sends_nearly_twice_its_payload():
    assert all_reduce_seconds(8e9, 8, 100e9, latency=0) == pytest.approx(2 * 7 / 8 * 8e9 / 100e9)
    assert all_reduce_seconds(8e9, 1, 100e9) == 0


def test_a_grace_cpu_is_nearer_than_pcie_and_two_blackwells_share_one():
    assert cluster("H100-80GB").host_link_bytes_s == pytest.approx(63e9, rel=0.01)
    assert cluster("A100-80GB").host_link_bytes_s == pytest.approx(31.5e9, rel=0.01)
    assert cluster("GH200-96GB").host_link_bytes_s == 2 * cluster("GB200").host_link_bytes_s == 450e9
    old, new, grace = (cluster(name).host_memory_bytes_s for name in ("A100-80GB", "H100-80GB", "GH200-96GB"))
    assert old < new < grace
