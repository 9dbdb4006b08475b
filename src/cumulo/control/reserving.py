"""Reservations of this cloud: made where there is room for them, drawn on by runs, given back, and over.

A reservation promises GPUs of a kind from a time on. It is only made if what is promised already, and what runs that
nothing stops may still hold then, leave enough; placement then keeps on-demand runs out of it.
"""

import secrets
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import Final

from cumulo.catalog.kinds import resolve
from cumulo.control.buying import buy_as
from cumulo.control.explain import check_gpu_names
from cumulo.control.live import LiveRun, LiveUnit, Picture
from cumulo.control.moves import tell
from cumulo.control.rates import Rates
from cumulo.domain.ask import GpuAsk
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import make_id, name_from, printable
from cumulo.domain.quantities import format_duration
from cumulo.domain.reservation import Reservation
from cumulo.domain.run import PurchaseOption
from cumulo.market.reservations import Span, earliest, free
from cumulo.placement.fit import admitted_kinds
from cumulo.placement.shares import kinds_held
from cumulo.store.batch import Batch
from cumulo.store.events import NewEvent

LEAST_TERM_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A reservation as somebody asks for it. `starts_at` None: now."""

    project: str
    account: str
    gpu: GpuAsk
    term_s: float
    starts_at: float | None = None
    upfront: bool = False
    name: str | None = None


# ---- made -----------------------------------------------------------------------------------------------------------


def reserve(seen: Picture, batch: Batch, wanted: Wanted, rates: Rates, now: float) -> Reservation:
    """Makes a reservation. Raises CumuloError: unknown_gpu, invalid_ask, invalid_request, conflict, no_capacity."""
    kind = _kind(seen, wanted.gpu)
    starts_at = now if wanted.starts_at is None else max(now, wanted.starts_at)
    name = wanted.name or name_from(f"{kind}-{wanted.gpu.count_min}")
    _check_room(seen, kind, wanted.gpu.count_min, starts_at, wanted.term_s, now)
    if any(one.name == name and one.project == wanted.project for one in seen.reservations.values()):
        raise CumuloError(
            "conflict", f"project {wanted.project} has a reservation {name} already", hint="give a --name"
        )
    devices = [device for use in seen.world.nodes.values() for device in use.node.devices]
    emulated = any(device.emulated for device in devices if device.model == kind)
    on_demand = 0 if emulated else rates.gpu_nano_h.get(kind, 0)
    price = rates.terms.reserved_nano_h(kind, on_demand, term_s=wanted.term_s, upfront=wanted.upfront)
    whole = round(price * wanted.gpu.count_min * wanted.term_s / 3600)
    made = Reservation(
        id=make_id(now, secrets.token_bytes(4)),
        name=name,
        project=wanted.project,
        account=wanted.account,
        region=_region(seen, kind),
        kind=kind,
        count=wanted.gpu.count_min,
        price_nano_h=0 if wanted.upfront else price,
        upfront_nano=whole if wanted.upfront else 0,
        created_at=now,
        starts_at=starts_at,
        ends_at=starts_at + wanted.term_s,
    )
    seen.reservations[made.id] = made
    batch.new_reservations.append(asdict(made) | {"over": False})
    when = "" if starts_at == now else f" from {moment(starts_at)}"
    text = f"{made.count} {kind} are reserved for project {made.project}{when} until {moment(made.ends_at)} ({name})"
    _note(batch, made, "reservation.created", text, now)
    return made


def _kind(seen: Picture, gpu: GpuAsk) -> str:
    """The one kind that is asked for, whole GPUs of it."""
    check_gpu_names(gpu, seen.world)
    if not gpu.whole or gpu.count_min != gpu.count_max:
        raise CumuloError("invalid_ask", "whole GPUs are reserved, so many of one kind; write for example A100-80GB:4")
    kinds = sorted((admitted_kinds(gpu, seen.world) or seen.world.models()) & seen.world.models())
    if not kinds:
        named = [kind for name in gpu.names for kind in resolve(name, present=seen.world.models())]
        raise CumuloError("no_capacity", f"this cloud has no {' or '.join(named) or 'GPUs'} to reserve")
    if len(kinds) > 1:
        raise CumuloError("invalid_ask", f"{gpu.describe()} may be {' or '.join(kinds)} here; name one of them")
    return kinds[0]


def _region(seen: Picture, kind: str) -> str:
    models = {use.id.partition("/")[0]: 0 for use in seen.world.nodes.values()}
    for use in seen.world.nodes.values():
        models[use.id.partition("/")[0]] += sum(device.model == kind for device in use.node.devices)
    return max(sorted(models), key=lambda region: models[region])


def reservable(seen: Picture, kind: str, *, since: float, term_s: float, now: float) -> int:
    """How many GPUs of a kind can be reserved from then for so long; below 0 where more is taken than there is."""
    taken = [*_reserved(seen, kind), *_firmly_held(seen, kind, now)]
    return free(_total(seen, kind), taken, since=since, until=since + term_s)


def _total(seen: Picture, kind: str) -> int:
    return sum(device.model == kind for use in seen.world.nodes.values() for device in use.node.devices)


def _reserved(seen: Picture, kind: str) -> list[Span]:
    return [Span(one.starts_at, one.ends_at, one.count) for one in seen.reservations.values() if one.kind == kind]


def _check_room(seen: Picture, kind: str, count: int, starts_at: float, term_s: float, now: float) -> None:
    """Raises CumuloError no_capacity, with what could be had, and when."""
    total, until = _total(seen, kind), starts_at + term_s
    if count > total:
        raise CumuloError("no_capacity", f"this cloud has {total} {kind}, {count} asked")
    there = reservable(seen, kind, since=starts_at, term_s=term_s, now=now)
    if there >= count:
        return
    reserved, held = _reserved(seen, kind), _firmly_held(seen, kind, now)
    parts = []
    if gpus := total - free(total, reserved, since=starts_at, until=until):
        parts.append(f"{gpus} of {total} are reserved")
    if gpus := total - free(total, held, since=starts_at, until=until):
        parts.append(f"{gpus} held by runs that are not spot and may last till then")
    when = "from now" if starts_at == now else f"from {moment(starts_at)}"
    text = f"{max(0, there)} {kind} can be reserved {when} for {format_duration(term_s)}, {count} asked"
    soonest = earliest(total, [*reserved, *held], count=count, term_s=term_s, since=starts_at)
    hint = "nobody can tell when so many can be had: runs that hold them declared no max_duration"
    if soonest is not None:
        hint = f"{count} can be had from {moment(soonest)} on (--start)"
    raise CumuloError("no_capacity", f"{text}: {', '.join(parts)}", hint=hint)


def _firmly_held(seen: Picture, kind: str, now: float) -> list[Span]:
    """Devices that runs hold which nothing stops, until they must have ended."""
    spans = []
    for hold, model, _ in kinds_held(seen.world, seen.world.holds.values()):
        if model == kind and hold.purchase is not PurchaseOption.SPOT and hold.reservation is None:
            until = inf if hold.until is None else max(hold.until, now)
            spans.append(Span(-inf, until, len(hold.device_uuids)))
    return spans


# ---- given back, and over -------------------------------------------------------------------------------------------


def give_back(seen: Picture, batch: Batch, text: str, now: float) -> Reservation:
    """Ends a reservation now, by id or name. What was paid upfront stays paid. Raises CumuloError not_found."""
    found = [one for one in seen.reservations.values() if text in (one.id, one.name)]
    exact = [one for one in found if one.id == text] or found
    if not exact:
        raise CumuloError("not_found", f"no reservation {printable(text, 64)!r} holds", hint="`cumulo reservations`")
    if len(exact) > 1:
        raise CumuloError("conflict", f"several projects have a reservation {text}; name it by its id")
    over = replace(exact[0], ends_at=now)
    batch.reservation(over.id, ends_at=over.ends_at)
    seen.reservations[over.id] = over
    _note(batch, over, "reservation.returned", f"reservation {over.name} was given back", now)
    return over


def pass_time(seen: Picture, batch: Batch, rates: Rates, now: float) -> bool:
    """Ends reservations whose time is over, and has what draws on them go on otherwise. True if there were any."""
    over = [one for one in seen.reservations.values() if one.ends_at <= now]
    for one in over:
        del seen.reservations[one.id]
        batch.reservation(one.id, over=True)
        _note(batch, one, "reservation.ended", f"reservation {one.name} of project {one.project} is over", now)
        for run in seen.runs.values():
            for unit in run.units.values():
                if any(each.reservation_id == one.id for each in unit.instances.values()):
                    _go_on(seen, batch, run, unit, one, rates, now)
    return bool(over)


def _go_on(
    seen: Picture, batch: Batch, run: LiveRun, unit: LiveUnit, over: Reservation, rates: Rates, now: float
) -> None:
    """A unit that drew on what is over goes on: on-demand, or as spot where others have reserved the rest."""
    option = PurchaseOption.ON_DEMAND
    if not buy_as(seen, batch, run, unit, option, rates, now):
        option = PurchaseOption.SPOT
        buy_as(seen, batch, run, unit, option, rates, now)
    more = "" if option is PurchaseOption.ON_DEMAND else ", since the rest is reserved"
    tell(batch, run, "run.rebought", f"reservation {over.name} is over: {run.spec.name} goes on as {option}{more}", now)


def moment(at: float) -> str:
    """`2026-12-30 14:00 UTC`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def _note(batch: Batch, one: Reservation, kind: str, message: str, now: float) -> None:
    batch.event(NewEvent(at=now, kind=kind, message=message, project=one.project, account=one.account))
