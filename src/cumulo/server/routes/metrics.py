"""Prometheus text. Hand-written: the format is ten lines, and its library keeps every sample in memory."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from cumulo import __version__
from cumulo.control.histogram import BOUNDS_S, Histogram
from cumulo.domain.lifecycle import RunStatus
from cumulo.server.auth import Auth
from cumulo.server.services import Services, Serving
from cumulo.store import views

router = APIRouter(tags=["metrics"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric: samples are (labels, value); a name's suffix (_bucket, _sum) stands in front of its labels."""

    name: str
    kind: str
    help: str
    samples: list[tuple[str, float]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            yield f"{self.name}{labels} {value:.10g}"


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(services: Serving, _caller: Auth) -> Response:
    """Runs, devices, scheduling and requests, for Prometheus. Needs a token like everything else.

    Asks nothing of the loops, so that it can tell of one that hangs.
    """
    families = (*_runs(services), *_devices(services), *_scheduling(services), *_requests(services))
    text = "\n".join(line for family in families for line in family.lines()) + "\n"
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _labels(**labels: object) -> str:
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _runs(services: Services) -> Iterator[Family]:
    with services.db.read() as tx:
        counts, waiting = views.counts_by_status(tx), views.waiting_units(tx)
    yield Family(
        name="cumulo_runs",
        kind="gauge",
        help="Runs in the store by status.",
        samples=[(_labels(status=status), counts.get(status, 0)) for status in RunStatus],
    )
    yield Family(
        name="cumulo_queue_length",
        kind="gauge",
        help="Units that wait to be placed for the first time.",
        samples=[("", waiting)],
    )


def _devices(services: Services) -> Iterator[Family]:
    with services.db.read() as tx:
        rows = views.devices(tx)
        nodes = views.nodes(tx, limit=500)
    states: Counter[tuple[str, str]] = Counter()
    for row in {row.uuid: row for row in rows}.values():
        free = "unhealthy" if row.health != "ok" else "foreign" if row.foreign_use else "free"
        states[row.model, "held" if row.instance_id else free] += 1
    yield Family(
        name="cumulo_devices",
        kind="gauge",
        help="Devices by kind and state.",
        samples=[(_labels(model=model, state=state), count) for (model, state), count in sorted(states.items())],
    )
    yield Family(
        name="cumulo_nodes",
        kind="gauge",
        help="Nodes by state.",
        samples=[(_labels(state=state), count) for state, count in sorted(Counter(n.state for n in nodes).items())],
    )


def _scheduling(services: Services) -> Iterator[Family]:
    loop = services.control.loop
    yield Family(
        name="cumulo_scheduling_seconds",
        kind="histogram",
        help="From accepting a run to placing its first unit.",
        samples=list(_histogram(loop.latencies)),
    )
    yield Family(
        name="cumulo_loop_age_seconds",
        kind="gauge",
        help="Since the last step of a loop ended; a loop that hangs grows old.",
        samples=[(_labels(loop=name), age) for name, age in _ages(services)],
    )
    yield Family(
        name="cumulo_commits_total",
        kind="counter",
        help="Transactions that wrote something, since the server started.",
        samples=[("", services.db.commits)],
    )


def _ages(services: Services) -> Iterator[tuple[str, float]]:
    now = time.monotonic()
    lasts = {"control": services.control.loop.last_step}
    lasts |= {f"engine {name}": driver.last_look for name, driver in services.control.drivers.items()}
    yield from ((name, now - last) for name, last in lasts.items() if last)


def _histogram(histogram: Histogram) -> Iterator[tuple[str, float]]:
    counts = histogram.cumulative()
    for bound, count in zip(BOUNDS_S, counts, strict=False):
        yield f'_bucket{{le="{bound:g}"}}', count
    yield '_bucket{le="+Inf"}', counts[-1]
    yield "_sum", histogram.total_s
    yield "_count", counts[-1]


def _requests(services: Services) -> Iterator[Family]:
    counters = services.counters
    yield Family(
        name="cumulo_http_requests_total",
        kind="counter",
        help="Requests answered, by method and status.",
        samples=[
            (_labels(method=method, status=status), count)
            for (method, status), count in sorted(dict(counters.requests).items())
        ],
    )
    yield Family(
        name="cumulo_http_seconds_total",
        kind="counter",
        help="From a request to the first byte of its answer, summed.",
        samples=[("", counters.seconds)],
    )
    yield Family(name="cumulo_followers", kind="gauge", help="Open event streams.", samples=[("", counters.followers)])
    yield Family(
        name="cumulo_streams", kind="gauge", help="Open streams into instances.", samples=[("", counters.streams)]
    )
    yield Family(
        name="cumulo_build_info",
        kind="gauge",
        help="Always 1; the version is in the label.",
        samples=[(_labels(version=__version__), 1)],
    )
