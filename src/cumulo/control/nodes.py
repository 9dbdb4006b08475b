"""Nodes as their engines report them: kept in the store and the world, and their leases.

A node whose engine does not answer is `unreachable`: nothing is placed there, and nothing of it is lost before its
lease runs out. The lease is long, since a restart, a network cut or a busy moment is not death.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import is_
from typing import Final

from cumulo.control.driver import Report
from cumulo.control.live import LiveInstance, Picture
from cumulo.domain.instance import ObservedInstance
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.domain.names import printable
from cumulo.domain.node import Node, NodeState
from cumulo.placement.world import Hold
from cumulo.store.batch import Batch
from cumulo.store.events import NewEvent

LEASE_S: Final = 600.0
# Not answering for less than this is a hiccup that nobody needs to hear of.
PATIENCE_S: Final = 10.0
# Silence is added up from one failed look to the next. More than this between two is a clock that jumped, or a machine
# that slept, and says nothing about the nodes.
MOST_BETWEEN_LOOKS_S: Final = 60.0


@dataclass(slots=True)
class _Silence:
    """How long an engine has not answered, by the looks that failed."""

    last: float
    seconds: float = 0.0


class NodeWatch:
    """Keeps nodes and their leases. `all_known` once every engine has told its nodes and all that runs there."""

    def __init__(self, regions: Iterable[str]) -> None:
        self._nodes_unknown, self._instances_unknown = set(regions), set(regions)
        self._silence: dict[str, _Silence] = {}  # of the engines that do not answer
        self._saved: set[str] = set()  # nodes that were written since this began
        self._forgotten: dict[str, int] = {}  # nodes that are gone, with the generation they had

    @property
    def all_known(self) -> bool:
        return not self._nodes_unknown and not self._instances_unknown

    def take_in(self, seen: Picture, batch: Batch, report: Report, now: float) -> None:
        """Takes in what a report says of nodes: that they are there, as they are, or that they do not answer."""
        if report.unreachable:
            silence = self._silence.setdefault(report.region, _Silence(now))
            silence.seconds += min(max(0.0, now - silence.last), MOST_BETWEEN_LOOKS_S)
            silence.last = now
            if silence.seconds >= PATIENCE_S:
                self._mark_unreachable(seen, batch, report, now)
            return
        self._silence.pop(report.region, None)
        if report.nodes is not None:
            self._take_in_nodes(seen, batch, report.region, report.nodes, now)
            self._nodes_unknown.discard(report.region)
        if report.observation is not None and report.observation.complete:
            self._instances_unknown.discard(report.region)

    def _take_in_nodes(self, seen: Picture, batch: Batch, region: str, nodes: tuple[Node, ...], now: float) -> None:
        reported = {f"{region}/{node.name}": node for node in nodes}
        holders = {uuid: hold for hold in seen.world.holds.values() for uuid in hold.device_uuids}
        for node_id, told in reported.items():
            known = seen.world.nodes.get(node_id)
            node = _as_known(holders, node_id, told)
            if node_id in self._saved and known is not None and known.node == node:
                continue
            if known is None or known.node.state is not node.state:
                _tell(batch, f"node.{node.state}", f"{node_id} is {node.state}", node_id, now)
            for device in node.devices:
                before = {d.uuid: d for d in known.node.devices}.get(device.uuid) if known else None
                if before is not None and before.health is not device.health:
                    text = f"GPU {device.index} of {node_id} is {device.health}: {device.health_reason}"
                    _tell(batch, "device.health", text, node_id, now)
            # One that was forgotten in this very step is still in the store, with its generation.
            came_back = known is None and node_id in batch.nodes
            self._save(batch, node_id, node, now)
            seen.world.see_node(node_id, node, generation=self._forgotten[node_id] if came_back else None)
        moved = {device.uuid for node in nodes for device in node.devices}
        for node_id in [i for i in seen.world.nodes if i.startswith(f"{region}/") and i not in reported]:
            self._gone(seen, batch, node_id, moved, now)

    def _save(self, batch: Batch, node_id: str, node: Node, now: float) -> None:
        row = {
            "id": node_id,
            "region": node_id.partition("/")[0],
            "name": node.name,
            "address": node.address,
            "cpus_milli": node.cpus_milli,
            "memory_bytes": node.memory_bytes,
            "emulated": node.emulated,
            "labels": json.dumps(node.labels, sort_keys=True),
            "state": str(node.state),
            "state_reason": node.state_reason,
            "seen_at": now,
            "lease_until": now + LEASE_S,
        }
        devices = [
            {
                "uuid": device.uuid,
                "node_id": node_id,
                "place": device.index,
                "model": device.model,
                "memory_bytes": device.memory_bytes,
                "emulated": device.emulated,
                "numa_node": device.numa_node,
                "health": str(device.health),
                "health_reason": device.health_reason,
                "foreign_use": device.foreign,
                "modes": ",".join(device.modes),
            }
            for device in node.devices
        ]
        batch.nodes[node_id] = row, devices
        self._saved.add(node_id)

    def _gone(self, seen: Picture, batch: Batch, node_id: str, moved: set[str], now: float) -> None:
        """The engine no longer has this node. It stays, down, for as long as something of it is held.

        Of its devices stay those that have not `moved` to a node that is there.
        """
        use = seen.world.nodes[node_id]
        if any(hold.node_id == node_id for hold in seen.world.holds.values()):
            left = tuple(device for device in use.node.devices if device.uuid not in moved)
            if use.node.state is not NodeState.DOWN or left != use.node.devices:
                seen.world.see_node(node_id, replace(use.node, devices=left))
                self._set_state(seen, batch, node_id, NodeState.DOWN, "its engine no longer has it", now)
            return
        batch.nodes[node_id] = None
        self._forgotten[node_id] = use.generation
        del seen.world.nodes[node_id]
        _tell(batch, "node.gone", f"{node_id} is no longer part of this cloud", node_id, now)

    def _mark_unreachable(self, seen: Picture, batch: Batch, report: Report, now: float) -> None:
        for node_id, use in list(seen.world.nodes.items()):
            if node_id.startswith(f"{report.region}/") and use.node.state is NodeState.READY:
                text = f"its engine does not answer: {printable(report.unreachable, 400)}"
                self._set_state(seen, batch, node_id, NodeState.UNREACHABLE, text, now)

    def _set_state(self, seen: Picture, batch: Batch, node_id: str, state: NodeState, reason: str, now: float) -> None:
        node = replace(seen.world.nodes[node_id].node, state=state, state_reason=reason)
        self._save(batch, node_id, node, now)
        seen.world.see_node(node_id, node)
        _tell(batch, f"node.{state}", f"{node_id} is {state}: {reason}", node_id, now)

    def expired(self, seen: Picture, now: float) -> list[tuple[LiveInstance, ObservedInstance]]:
        """Instances of nodes whose lease has run out, as lost."""
        late = {region for region, silence in self._silence.items() if silence.seconds >= LEASE_S}
        if not late:
            return []
        return [
            (instance, lost(instance, f"its node did not answer for {LEASE_S / 60:.0f} minutes", now))
            for instance in list(seen.instances.values())
            if instance.region in late and not instance.ended
        ]


def _as_known(holders: dict[str, Hold], node_id: str, node: Node) -> Node:
    """The node with words made safe, and with what somebody holds as part of another node marked as not ours to give.

    A device that moves (a host that was renamed, a GPU that was put elsewhere) is held where it was placed.
    """
    devices = []
    for device in node.devices:
        holder, foreign = holders.get(device.uuid), printable(device.foreign, 500)
        if holder is not None and holder.node_id != node_id:
            foreign = f"{holder.instance_id}, which was placed when it was part of another node"
        words = printable(device.health_reason, 500), foreign
        same = words == (device.health_reason, device.foreign)
        devices.append(device if same else replace(device, health_reason=words[0], foreign=foreign))
    reason = printable(node.state_reason, 500)
    if reason == node.state_reason and all(map(is_, devices, node.devices)):
        return node  # as nearly always: with thousands of nodes, copies of the same would be most of the work
    return replace(node, devices=tuple(devices), state_reason=reason)


def lost(instance: LiveInstance, message: str, now: float) -> ObservedInstance:
    """What is observed of an instance that is lost."""
    return ObservedInstance(
        instance_id=instance.id,
        cloud_id="",
        state=InstanceState.ENDED,
        ended_at=now,
        reason=EndReason.LOST,
        message=message,
    )


def _tell(batch: Batch, kind: str, message: str, node_id: str, now: float) -> None:
    batch.event(NewEvent(at=now, kind=kind, message=message, project="default", account="", node_id=node_id))
