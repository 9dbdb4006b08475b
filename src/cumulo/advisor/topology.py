"""How GPUs are wired: which bandwidth a ring of them gets.

Inside a node (or an NVL72 rack) GPUs talk over NVLink or its like, else over PCIe; between nodes each GPU has its share
of the node's NICs. A ring that has g GPUs in each node may use the NICs of all g: what it gets is
min(NVLink, g x NIC). All bandwidths are bytes a second in one direction.
"""

import re
from dataclasses import dataclass
from typing import Final

from cumulo.catalog.coefficients import Section
from cumulo.catalog.variants import Variant

# A lane of PCIe in bytes a second and direction, by generation, after encoding.
_PCIE_LANE: Final = {"2.0": 0.5e9, "3.0": 0.985e9, "4.0": 1.97e9, "5.0": 3.94e9, "6.0": 7.56e9}
_PCIE = re.compile(r"(\d\.\d)\s*x(\d+)")
# What clouds and vendors' reference systems put beside each GPU: 100, 200 or 400 Gbit/s.
_NIC_BY_ARCHITECTURE: Final = {"Pascal": 6.25e9, "Volta": 12.5e9, "Ampere": 25e9}
_NIC_BESIDE_FABRIC: Final = 50e9
_NIC_OF_NODE: Final = 12.5e9
"""Of a node whose GPUs have no fabric: one NIC of 100 Gbit/s for all."""
_FABRIC_GPUS: Final = {"NVL72": 72}
_NODE_GPUS: Final = 8
# What of its node's memory bandwidth is a GPU's, where 8 stand beside two sockets: 12 channels of DDR4-2666 or 16 of
# DDR4-3200 in all, 16 of DDR5-4800 since; a Grace CPU has LPDDR5X for one Hopper or two Blackwells.
_HOST_BY_ARCHITECTURE: Final = {"Volta": 256e9 / 8, "Turing": 256e9 / 8, "Ampere": 410e9 / 8}
_HOST_SINCE: Final = 614e9 / 8
_GRACE: Final = 480e9
_GRACE_LINK: Final = 450e9
"""NVLink-C2C, one way."""
_COLLECTIVE_SECONDS: Final = 10e-6
"""What a collective of any size takes inside a node; a hop between nodes takes as long again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """GPUs of one kind. `memory_bytes` is of one GPU, `nic_bytes_s` what a GPU has of its node's NICs.

    `gpus_per_node` counts the GPUs that reach one another without a NIC: 8 in most servers, 72 in an NVL72 rack.
    `architecture` is the catalogue's (`Hopper`); None if unknown.
    """

    variant: Variant
    architecture: str | None
    memory_bytes: int
    gpus: int
    gpus_per_node: int
    nic_bytes_s: float

    @property
    def fabric_bytes_s(self) -> float:
        """Between two GPUs of a node, one way."""
        if self.has_fabric:
            return (self.variant.fabric_bandwidth or 0) / 2
        return _pcie(self.variant.pcie)

    @property
    def host_link_bytes_s(self) -> float:
        """Between a GPU and its host's memory, one way."""
        return _GRACE_LINK / shared if (shared := self._grace) else _pcie(self.variant.pcie)

    @property
    def host_memory_bytes_s(self) -> float:
        """What of its host's memory bandwidth a GPU has to itself, as such GPUs are mostly built in."""
        if shared := self._grace:
            return _GRACE / shared
        return _HOST_BY_ARCHITECTURE.get(self.architecture or "", _HOST_SINCE)

    @property
    def _grace(self) -> int:
        """How many GPUs share a Grace CPU that they are one module with; 0 without one."""
        if not (self.variant.form_factor or "").startswith("superchip"):
            return 0
        return 1 if self.architecture == "Hopper" else 2

    @property
    def has_fabric(self) -> bool:
        """False where GPUs of a node reach one another over PCIe only."""
        return has_fabric(self.variant, self.architecture)


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What share of the wires' rates collectives reach, as fitted."""

    fabric_share: float
    nic_share: float

    @classmethod
    def of(cls, constants: Section) -> "Links":
        return cls(fabric_share=constants.number("fabric_share"), nic_share=constants.number("nic_share"))

    def ring(self, cluster: Cluster, group: int, stride: int) -> float:
        """Bytes a second that each member of a ring moves. Members lie `stride` GPUs apart in rank order."""
        fabric = cluster.fabric_bytes_s * self.fabric_share
        here = max(cluster.gpus_per_node // stride, 1)
        if group <= here:
            return fabric
        return min(fabric, min(here, group) * cluster.nic_bytes_s * self.nic_share)

    def exchange_seconds(self, cluster: Cluster, group: int, *, copies: int, payload: float) -> float:
        """Of tokens that each go to `copies` members of a group, drawn evenly; `payload` bytes is one copy of all.

        A token goes once over its sender's NIC to each other node that wants it, and there over the fabric to each
        member that does.
        """
        here = min(cluster.gpus_per_node, group)
        nodes = group / here
        away = nodes * (1 - (1 - 1 / nodes) ** copies) * (nodes - 1) / nodes
        beside = copies * (here - 1) / here
        fabric, nic = cluster.fabric_bytes_s * self.fabric_share, cluster.nic_bytes_s * self.nic_share
        return payload * (beside / fabric + away / nic)


def has_fabric(variant: Variant, architecture: str | None) -> bool:
    """Whether every GPU of a node reaches the others without PCIe: an NVLink bridge of PCIe boards joins only two."""
    bridged = (variant.form_factor or "").startswith("PCIe") and not (architecture or "").startswith("CDNA")
    return bool(variant.fabric_bandwidth) and not bridged


def all_reduce_seconds(payload: float, group: int, bandwidth: float, *, latency: float = _COLLECTIVE_SECONDS) -> float:
    """A ring all-reduce of `payload` bytes: each member sends 2 (n-1)/n of it. Reduce-scatter or all-gather: half."""
    return 0.0 if group <= 1 else latency + 2 * (group - 1) / group * payload / bandwidth


def typical_cluster(
    variant: Variant, architecture: str | None, *, memory_bytes: int, gpus: int, gpus_per_node: int | None = None
) -> Cluster:
    """How such GPUs are mostly wired and sold, where nothing more is known."""
    form = variant.form_factor or ""
    rack = next((count for word, count in _FABRIC_GPUS.items() if word in form), _NODE_GPUS)
    per_node = gpus_per_node or rack
    wired = has_fabric(variant, architecture)
    nic = _NIC_BY_ARCHITECTURE.get(architecture or "", _NIC_BESIDE_FABRIC) if wired else _NIC_OF_NODE / per_node
    return Cluster(
        variant=variant,
        architecture=architecture,
        memory_bytes=memory_bytes,
        gpus=gpus,
        gpus_per_node=per_node,
        nic_bytes_s=nic,
    )


def _pcie(spelled: str | None) -> float:
    """One way, from `4.0 x16`; what is unknown is taken to be the slowest that is still sold."""
    found = _PCIE.search(spelled or "")
    return _PCIE_LANE.get(found[1], _PCIE_LANE["3.0"]) * int(found[2]) if found else _PCIE_LANE["3.0"] * 16
