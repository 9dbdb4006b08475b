"""Nodes as their engines report them: kept in the store and the world, and their leases.

A node whose engine does not answer is `unreachable`: nothing is placed there, and nothing of it is lost before its
lease runs out. The lease is long, since a restart, a network cut or a busy moment is not death.
"""

import json
from dataclasses import replace
from typing import Final

from cumulo.control.driver import EngineDriver, Report
from cumulo.control.live import LiveInstance, Picture
from cumulo.domain.instance import ObservedInstance
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.domain.node import Node, NodeState
from cumulo.store import picture
from cumulo.store.batch import Batch
from cumulo.store.database import Database
from cumulo.store.events import NewEvent

LEASE_S: Final = 600.0
# Not answering for less than this is a hiccup that nobody needs to hear of.
PATIENCE_S: Final = 10.0


class NodeWatch:
    """Keeps nodes and their leases. `all_known` once every engine has reported its nodes for the first time."""

    def __init__(self, db: Database, drivers: dict[str, EngineDriver]) -> None:
        self._db, self._regions = db, frozenset(drivers)
        self._heard: set[str] = set()
        self._seen_at: dict[str, float] = {}  # region -> when it last answered
        self._saved: dict[str, Node] = {}

    @property
    def all_known(self) -> bool:
        return self._heard == self._regions

    def take_in(self, seen: Picture, batch: Batch, report: Report, now: float) -> bool:
        """Returns whether leases may have run out, which is then to be looked at."""
        if report.unreachable:
            since = self._seen_at.setdefault(report.region, now)
            if now - since >= PATIENCE_S:
                self._mark_unreachable(seen, batch, report, now)
            return now - since >= LEASE_S
        self._seen_at[report.region] = now
        if report.nodes is not None:
            self._heard.add(report.region)
            self._take_in_nodes(seen, batch, report.region, report.nodes, now)
        return False

    def _take_in_nodes(self, seen: Picture, batch: Batch, region: str, nodes: tuple[Node, ...], now: float) -> None:
        reported = {f"{region}/{node.name}": node for node in nodes}
        for node_id, node in reported.items():
            known = seen.world.nodes.get(node_id)
            if self._saved.get(node_id) == node and known is not None and known.node == node:
                continue
            self._save(region, node_id, node, now)
            if known is None or known.node.state is not node.state:
                _tell(batch, f"node.{node.state}", f"{node_id} is {node.state}", node_id, now)
            for device in node.devices:
                before = {d.uuid: d for d in known.node.devices}.get(device.uuid) if known else None
                if before is not None and before.health is not device.health:
                    text = f"GPU {device.index} of {node_id} is {device.health}: {device.health_reason}"
                    _tell(batch, "device.health", text, node_id, now)
            seen.world.see_node(node_id, node)
        for node_id in [i for i in seen.world.nodes if i.startswith(f"{region}/") and i not in reported]:
            self._gone(seen, batch, node_id, now)

    def _save(self, region: str, node_id: str, node: Node, now: float) -> None:
        row = {
            "id": node_id,
            "region": region,
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
            }
            for device in node.devices
        ]
        with self._db.write() as tx:
            picture.save_node(tx, row, devices)
        self._saved[node_id] = node

    def _gone(self, seen: Picture, batch: Batch, node_id: str, now: float) -> None:
        """The engine no longer has this node. It stays, down, for as long as something of it is held."""
        use = seen.world.nodes[node_id]
        if any(hold.node_id == node_id for hold in seen.world.holds.values()):
            if use.node.state is not NodeState.DOWN:
                self._set_state(seen, batch, node_id, NodeState.DOWN, "its engine no longer has it", now)
            return
        with self._db.write() as tx:
            picture.forget_node(tx, node_id)
        del seen.world.nodes[node_id]
        self._saved.pop(node_id, None)
        _tell(batch, "node.gone", f"{node_id} is no longer part of this cloud", node_id, now)

    def _mark_unreachable(self, seen: Picture, batch: Batch, report: Report, now: float) -> None:
        for node_id, use in list(seen.world.nodes.items()):
            if node_id.startswith(f"{report.region}/") and use.node.state is NodeState.READY:
                text = f"its engine does not answer: {report.unreachable}"
                self._set_state(seen, batch, node_id, NodeState.UNREACHABLE, text, now)

    def _set_state(self, seen: Picture, batch: Batch, node_id: str, state: NodeState, reason: str, now: float) -> None:
        node = replace(seen.world.nodes[node_id].node, state=state, state_reason=reason)
        self._save(node_id.partition("/")[0], node_id, node, now)
        seen.world.see_node(node_id, node)
        _tell(batch, f"node.{state}", f"{node_id} is {state}: {reason}", node_id, now)

    def expired(self, seen: Picture, now: float) -> list[tuple[LiveInstance, ObservedInstance]]:
        """Instances of nodes whose lease has run out, as lost."""
        late = {region for region, at in self._seen_at.items() if now - at >= LEASE_S}
        return [
            (instance, lost(instance, f"its node did not answer for {LEASE_S / 60:.0f} minutes", now))
            for instance in list(seen.instances.values())
            if instance.region in late and not instance.ended
        ]


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
