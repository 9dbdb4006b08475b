"""Worlds to place in: by hand, and drawn by hypothesis."""

from hypothesis import settings
from hypothesis import strategies as st

from cumulo.domain.ask import Ask, parse_gpu_ask
from cumulo.domain.node import Device, DeviceHealth, Node, NodeState
from cumulo.domain.quantities import GIB
from cumulo.domain.sharing import SharingMode, Slice
from cumulo.placement.fit import choose
from cumulo.placement.world import Hold, Waiting, World

MEMORY = {"A100-80GB": 80 * GIB, "H100-80GB": 80 * GIB, "T4": 15 * GIB, "L4": 23 * GIB}


def ask(gpu=None, *, cpus=None, gib=None, nodes=1):
    """An ask in the words people use: `ask("A100:8", cpus=16, gib=64, nodes=2)`."""
    return Ask(
        gpu=parse_gpu_ask(gpu) if gpu else None,
        cpus_milli=None if cpus is None else int(cpus * 1000),
        memory_bytes=None if gib is None else int(gib * GIB),
        nodes=nodes,
    )


def node(name, gpus=(), *, cpus=64, gib=512, **changes):
    """A node with devices `{name}-0…` of the kinds in `gpus`; a kind may be a ready-made Device."""
    devices = tuple(
        gpu
        if isinstance(gpu, Device)
        else Device(uuid=f"{name}-{index}", index=index, model=gpu, memory_bytes=MEMORY[gpu])
        for index, gpu in enumerate(gpus)
    )
    return Node(name=name, cpus_milli=cpus * 1000, memory_bytes=gib * GIB, devices=devices, **changes)


def device(name, index, model="A100-80GB", **changes):
    return Device(uuid=f"{name}-{index}", index=index, model=model, memory_bytes=MEMORY[model], **changes)


def world(*nodes, holds=()):
    made = World()
    for each in nodes:
        made.see_node(each.name, each)
    for each in holds:
        made.hold(each)
    return made


def part(uuid, milli, *, gib=0, mode=SharingMode.MPS):
    """A fraction of a device."""
    return Slice(device_uuid=uuid, mode=mode, milli=milli, memory_bytes=int(gib * GIB))


def mig(uuid, profile, start, milli=125):
    """A MIG instance on a device."""
    return Slice(device_uuid=uuid, mode=SharingMode.MIG, milli=milli, profile=profile, start=start)


def hold(name, node_id, *devices, cpus=1, gib=1, until=None):
    """A hold of the node's devices with those indices, whole, or of ready-made slices."""
    return Hold(
        instance_id=name,
        run_id=name,
        run_name=name,
        node_id=node_id,
        cpus_milli=int(cpus * 1000),
        memory_bytes=int(gib * GIB),
        slices=tuple(
            index if isinstance(index, Slice) else Slice(device_uuid=f"{node_id}-{index}") for index in devices
        ),
        until=until,
    )


def noting(tried):
    """`choose`, that notes what it was asked for."""

    def note(seen, asked):
        tried.append(asked)
        return choose(seen, asked)

    return note


def waiting(name, what, *, priority=0, at=0.0, duration=None):
    return Waiting(key=(name, 0, 1), name=name, ask=what, priority=priority, accepted_at=at, duration_s=duration)


# Drawing a world costs far more than placing in it.
few = settings(max_examples=40, deadline=None)

# ---- drawn ----------------------------------------------------------------------------------------------------------

kinds = st.sampled_from(sorted(MEMORY))
healths = st.sampled_from((DeviceHealth.OK,) * 6 + tuple(DeviceHealth))
states = st.sampled_from((NodeState.READY,) * 6 + tuple(NodeState))


@st.composite
def nodes(draw, name):
    gpus = draw(st.lists(kinds, max_size=4))
    devices = tuple(
        Device(
            uuid=f"{name}-{index}",
            index=index,
            model=model,
            memory_bytes=MEMORY[model],
            health=draw(healths),
            foreign=draw(st.sampled_from(("", "", "", "", "somebody's python"))),
        )
        for index, model in enumerate(gpus)
    )
    return Node(
        name=name,
        cpus_milli=draw(st.integers(1, 32)) * 1000,
        memory_bytes=draw(st.integers(2, 128)) * GIB,
        devices=devices,
        state=draw(states),
    )


@st.composite
def worlds(draw, most=5):
    made = World()
    for number in range(draw(st.integers(0, most))):
        made.see_node(f"n{number}", draw(nodes(f"n{number}")))
    for number in range(draw(st.integers(0, 6)) if made.nodes else 0):
        use = made.nodes[draw(st.sampled_from(sorted(made.nodes)))]
        free = [each.uuid for each in use.node.devices if use.empty(each)]
        cpus = draw(st.integers(0, max(0, use.cpus_free // 1000)))
        gib = draw(st.integers(0, max(0, use.memory_free // GIB)))
        taken = draw(st.lists(st.sampled_from(free), unique=True)) if free else []
        made.hold(
            Hold(
                instance_id=f"held{number}",
                run_id=f"held{number}",
                run_name=f"held{number}",
                node_id=use.id,
                cpus_milli=cpus * 1000,
                memory_bytes=gib * GIB,
                slices=tuple(Slice(device_uuid=uuid) for uuid in taken),
                until=draw(st.none() | st.integers(1, 20).map(float)),
            )
        )
    return made


gpu_asks = st.sampled_from(
    ("1", "2", "A100", "A100:2", "A100,H100:2", "24GB..:1..4", "1..3", "T4,L4:1..2", "..24GB", "8", "H100:2..3")
).map(parse_gpu_ask)
asks = st.builds(
    Ask,
    gpu=st.none() | gpu_asks,
    cpus_milli=st.none() | st.integers(1, 40).map(lambda cpus: cpus * 1000),
    memory_bytes=st.none() | st.integers(1, 150).map(lambda gib: gib * GIB),
    nodes=st.sampled_from((1, 1, 1, 2, 3)),
)


@st.composite
def queues(draw, most=8):
    return [
        Waiting(
            key=(f"r{number}", 0, 1),
            name=f"r{number}",
            ask=draw(asks),
            priority=draw(st.integers(-1, 1)),
            accepted_at=float(draw(st.integers(0, 3))),
            duration_s=draw(st.none() | st.integers(1, 20).map(float)),
        )
        for number in range(draw(st.integers(0, most)))
    ]
