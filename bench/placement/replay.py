"""A workload played through a queue, from event to event: jobs come, are placed by a policy, run, and end.

`place` replays run on the same `World` and the same `place` that the cloud uses: whole GPUs on emulated nodes of eight.
The preemptive references (`las`, `srtf`) count GPUs only and stop and resume jobs at no cost: better than can be had.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from random import Random

from bench.placement.workloads import GPUS_A_NODE, Job, Workload
from cumulo.domain.ask import Ask, GpuAsk
from cumulo.domain.node import Device, Node
from cumulo.domain.quantities import GIB
from cumulo.placement.order import Pass, place
from cumulo.placement.policy import Policy
from cumulo.placement.reserve import held_places
from cumulo.placement.world import Waiting, World

HOUR = 3600.0
# Limits as people declare them: the truth times one of these, rounded up to a round time (Mu'alem and Feitelson, 2001).
OVER = (1.0, 2.0, 4.0)
ROUND = tuple(HOUR * hours for hours in (0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 72, 168, 336, 720, 1440, 2880))


@dataclass(slots=True)
class Played:
    """When each job started last and ended, and how many were there (waiting or running) from which moment on."""

    starts: list[float]
    ends: list[float]
    moments: list[float] = field(default_factory=list)
    there: list[int] = field(default_factory=list)
    passes: int = 0

    def saw(self, now: float, there: int) -> None:
        self.moments.append(now)
        self.there.append(there)

    def crowds(self, jobs: list[Job]) -> list[float]:
        """How many jobs were there on average while each was."""
        summed = [0.0]
        for since, until, there in zip(self.moments, self.moments[1:], self.there, strict=False):
            summed.append(summed[-1] + there * (until - since))

        def counted(at: float) -> float:
            last = bisect_right(self.moments, at) - 1
            return summed[last] + self.there[last] * (at - self.moments[last])

        return [(counted(end) - counted(job.at)) / (end - job.at) for job, end in zip(jobs, self.ends, strict=True)]


Decide = Callable[[World, list[Waiting], float], Pass]
Told = Callable[[int, Job], Waiting]


def fifo(world: World, queue: list[Waiting], now: float) -> Pass:
    """Nobody passes the first that waits."""
    return place(world, queue, now=now, limit=len(queue), policy=Policy(backfill=False, stretch=0.0))


def first_fit(world: World, queue: list[Waiting], now: float) -> Pass:
    """Whatever fits, the first accepted first."""
    return place(world, queue, limit=len(queue))


def cumulo(world: World, queue: list[Waiting], now: float) -> Pass:
    return place(world, queue, now=now, limit=len(queue))


def placed(workload: Workload, decide: Decide, told: Told) -> Played:
    """`told` makes of a job what the queue is told of it. Raises RuntimeError where jobs can never start."""
    jobs, world = workload.jobs, _world(workload.nodes)
    played = Played([inf] * len(jobs), [inf] * len(jobs))
    queue: dict[int, Waiting] = {}
    running: list[tuple[float, int, list[str]]] = []
    arrived = 0
    while arrived < len(jobs) or running or queue:
        now = min(jobs[arrived].at if arrived < len(jobs) else inf, running[0][0] if running else inf)
        if now == inf:
            raise RuntimeError(f"{len(queue)} jobs of {workload.name} can never start")
        while running and running[0][0] <= now:
            for name in heappop(running)[2]:
                world.release(name)
        while arrived < len(jobs) and jobs[arrived].at <= now:
            queue[arrived] = told(arrived, jobs[arrived])
            arrived += 1
        played.passes += 1
        for decision in decide(world, list(queue.values()), now):
            number = int(decision.waiting.key[0])
            declared = queue.pop(number).duration_s
            holds = held_places(decision.waiting, decision.places, None if declared is None else now + declared)
            for hold in holds:
                world.hold(replace(hold, started_at=now))
            played.starts[number], played.ends[number] = now, now + jobs[number].seconds
            heappush(running, (played.ends[number], number, [hold.instance_id for hold in holds]))
        played.saw(now, len(queue) + len(running))
    return played


def waiting(number: int, job: Job, *, at: float, declared: float | None) -> Waiting:
    """What the queue is told of a job: that it was accepted `at`, and how long it declared to take at most."""
    gpu = GpuAsk(count_min=job.gpus_a_node, count_max=job.gpus_a_node)
    return Waiting(
        key=(f"{number:06}", 0, 1),
        name=f"job{number}",
        ask=Ask(gpu=gpu, cpus_milli=1000 * job.gpus_a_node, memory_bytes=GIB * job.gpus_a_node, nodes=job.nodes),
        priority=0,
        accepted_at=at,
        duration_s=declared,
        project=job.project,
    )


def limits(jobs: list[Job], seed: int) -> list[float]:
    """A limit for each job, as people declare them."""
    random = Random(seed)
    return [_round_up(job.seconds * random.choice(OVER)) for job in jobs]


def _round_up(seconds: float) -> float:
    return next((limit for limit in ROUND if limit >= seconds), seconds)


def _world(nodes: int) -> World:
    world = World()
    for number in range(nodes):
        name = f"n{number:04}"
        devices = tuple(
            Device(uuid=f"{name}-{index}", index=index, model="V100-16GB", memory_bytes=16 * GIB)
            for index in range(GPUS_A_NODE)
        )
        world.see_node(name, Node(name=name, cpus_milli=96_000, memory_bytes=512 * GIB, devices=devices))
    return world


# ---- preemptive references ------------------------------------------------------------------------------------------

# Tiresias' two queues of attained GPU time (Gu et al., NSDI 2019): a job falls to the second at one GPU-hour.
LAS_QUEUE_S = 3600.0


def preemptive(workload: Workload, *, las: bool) -> Played:
    """Least attained GPU time first, in two queues by age (Tiresias' 2D-LAS); else shortest remaining time first."""
    jobs, gpus = workload.jobs, workload.nodes * GPUS_A_NODE
    played = Played([inf] * len(jobs), [inf] * len(jobs))
    left: dict[int, float] = {}
    running: set[int] = set()
    arrived, now = 0, 0.0

    def rank(number: int) -> tuple[float, float, int]:
        if las:
            attained = (jobs[number].seconds - left[number]) * jobs[number].gpus
            return float(attained >= LAS_QUEUE_S - 1e-6), jobs[number].at, number
        return left[number], jobs[number].at, number

    def change(number: int) -> float:
        """When a running job ends or falls to the second queue."""
        fall = LAS_QUEUE_S / jobs[number].gpus - (jobs[number].seconds - left[number])
        return now + min(left[number], fall if las and fall > 1e-6 else inf)

    while arrived < len(jobs) or left:
        soon = min(jobs[arrived].at if arrived < len(jobs) else inf, min(map(change, running), default=inf))
        for number in running:
            left[number] -= soon - now
        now = soon
        for number in [each for each in running if left[each] <= 1e-6]:
            played.ends[number] = now
            del left[number]
        while arrived < len(jobs) and jobs[arrived].at <= now:
            left[arrived] = jobs[arrived].seconds
            arrived += 1
        free, running = gpus, set()
        for number in sorted(left, key=rank):
            if jobs[number].gpus <= free:
                free -= jobs[number].gpus
                running.add(number)
                played.starts[number] = min(played.starts[number], now)
        played.passes += 1
        played.saw(now, len(left))
    return played
