"""Worlds to place in: by hand, and drawn by hypothesis."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st

from cumulo.catalog.mig import mig_layout
from cumulo.domain.ask import Ask, GpuAsk, parse_gpu_ask
from cumulo.domain.node import Device, DeviceHealth, Node, NodeState
from cumulo.domain.quantities import GIB
from cumulo.domain.sharing import Isolation, SharingMode, Slice
from cumulo.placement.device import mig_starts
from cumulo.placement.fit import choose
from cumulo.placement.slicing import mig_part, share_free
from cumulo.placement.world import Hold, Waiting, World

E, M, P, T = SharingMode.EXCLUSIVE, SharingMode.MIG, SharingMode.MPS, SharingMode.TIMESLICE
MODES = {"A100-80GB": (E, M, P, T), "H100-80GB": (E, M, P, T), "T4": (E, P, T), "L4": (E, P, T)}
MEMORY = {"A100-80GB": 80 * GIB, "H100-80GB": 80 * GIB, "T4": 15 * GIB, "L4": 23 * GIB}


def ask(gpu=None, *, cpus=None, gib=None, nodes=1, hard=False, **part):
    """An ask in the words people use: `ask("A100:8", cpus=16, gib=64, nodes=2)`; `part` says more of a fraction."""
    return Ask(
        gpu=replace(parse_gpu_ask(gpu), **part) if gpu else None,
        cpus_milli=None if cpus is None else int(cpus * 1000),
        memory_bytes=None if gib is None else int(gib * GIB),
        nodes=nodes,
        isolation=Isolation.HARD if hard else Isolation.ANY,
    )


def node(name, gpus=(), *, cpus=64, gib=512, **changes):
    """A node with devices `{name}-0…` of the kinds in `gpus`; a kind may be a ready-made Device."""
    devices = tuple(gpu if isinstance(gpu, Device) else device(name, index, gpu) for index, gpu in enumerate(gpus))
    return Node(name=name, cpus_milli=cpus * 1000, memory_bytes=gib * GIB, devices=devices, **changes)


def device(name, index, model="A100-80GB", **changes):
    changes.setdefault("modes", MODES[model])
    return Device(uuid=f"{name}-{index}", index=index, model=model, memory_bytes=MEMORY[model], **changes)


def world(*nodes, holds=(), may_change_mode=True):
    made = World(may_change_mode=may_change_mode)
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


def hold(name, node_id, *devices, cpus=1, gib=1, until=None, **changes):
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
        **changes,
    )


def chosen(seen, asked):
    """The places of an ask that fits."""
    places = choose(seen, asked)
    assert places is not None
    return places


def noting(tried):
    """`choose`, that notes what it was asked for."""

    def note(seen, asked):
        tried.append(asked)
        return choose(seen, asked)

    return note


def waiting(name, what, *, priority=0, at=0.0, duration=None, **changes):
    return Waiting(
        key=(name, 0, 1), name=name, ask=what, priority=priority, accepted_at=at, duration_s=duration, **changes
    )


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
            modes=draw(st.sampled_from((MODES[model],) * 4 + ((E,), (T, P), MODES[model][1:]))),
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
def free_slices(draw, use):
    """What one more instance may hold of a node's devices."""
    found = []
    for each in use.node.devices:
        mode = use.held(each).mode
        modes = each.modes if mode is None else () if mode is E else (mode,)
        if modes and draw(st.booleans()):
            found += draw(slices_of(use, each, draw(st.sampled_from(modes))))
    return tuple(found)


@st.composite
def slices_of(draw, use, device, mode):
    if mode is E:
        return [Slice(device_uuid=device.uuid, memory_bytes=device.memory_bytes)]
    if mode is M:
        layout = mig_layout(device.model)
        assert layout is not None
        spots = [
            (mig_part(device, layout, profile).slice, start)
            for profile in layout.profiles
            for start in mig_starts(layout, profile.name, use.held(device).instances())
        ]
        return [replace(each, start=start) for each, start in [draw(st.sampled_from(spots))]] if spots else []
    free = share_free(use, device)
    milli = draw(st.integers(1, free)) if free > 0 else 0
    return [part(device.uuid, milli, mode=mode, gib=milli * device.memory_bytes // 1000 / GIB)] if milli else []


@st.composite
def worlds(draw, most=5):
    made = World()
    for number in range(draw(st.integers(0, most))):
        made.see_node(f"n{number}", draw(nodes(f"n{number}")))
    for number in range(draw(st.integers(0, 6)) if made.nodes else 0):
        use = made.nodes[draw(st.sampled_from(sorted(made.nodes)))]
        cpus = draw(st.integers(0, max(0, use.cpus_free // 1000)))
        gib = draw(st.integers(0, max(0, use.memory_free // GIB)))
        made.hold(
            Hold(
                instance_id=f"held{number}",
                run_id=f"held{number}",
                run_name=f"held{number}",
                node_id=use.id,
                cpus_milli=cpus * 1000,
                memory_bytes=gib * GIB,
                slices=draw(free_slices(use)),
                until=draw(st.none() | st.integers(1, 20).map(float)),
            )
        )
    return made


whole_asks = st.sampled_from(
    ("1", "2", "A100", "A100:2", "A100,H100:2", "24GB..:1..4", "1..3", "T4,L4:1..2", "..24GB", "8", "H100:2..3")
).map(parse_gpu_ask)
mig_asks = st.sampled_from(
    ("mig-1g.10gb", "H100:mig-3g.40gb", "mig-1g.20gb:2", "A100:mig-2g.20gb:1..5", "mig-7g.80gb:2", "mig-1g.5gb")
).map(parse_gpu_ask)
fractions = st.builds(
    GpuAsk,
    names=st.sampled_from(((), ("A100",), ("T4", "L4"))),
    milli=st.integers(1, 999),
    sharing=st.sampled_from((None, None, P, T)),
) | st.builds(GpuAsk, slice_memory=st.integers(1, 90).map(lambda gib: gib * GIB))
gpu_asks = whole_asks | fractions | mig_asks
asks = st.builds(
    Ask,
    gpu=st.none() | gpu_asks,
    cpus_milli=st.none() | st.integers(1, 40).map(lambda cpus: cpus * 1000),
    memory_bytes=st.none() | st.integers(1, 150).map(lambda gib: gib * GIB),
    nodes=st.sampled_from((1, 1, 1, 2, 3)),
    isolation=st.sampled_from((Isolation.ANY, Isolation.ANY, Isolation.HARD)),
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
