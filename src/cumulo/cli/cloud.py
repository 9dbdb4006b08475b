"""`offers`, `nodes` and `top`: what can be had, who holds what, and what it is doing."""

from datetime import timedelta

import click

from cumulo.cli import phrases, slices
from cumulo.cli.actions import DURATION
from cumulo.cli.phrases import DASH, clean
from cumulo.cli.session import Session, with_session
from cumulo.cli.tables import Column, render
from cumulo.cli.watch import show, watch_option
from cumulo.client.answers.cloud import Device, Node, Offer, Telemetry
from cumulo.domain.quantities import format_duration
from cumulo.domain.sharing import FRACTION_MODES, WHOLE_MILLI


@click.command("offers")
@click.argument("ask", required=False)
@click.option("--history", is_flag=True, help="Spot prices as they were; ASK is a GPU kind then.")
@click.option("--since", metavar="TIME", type=DURATION, default="24h", help="With --history: how far back (24h).")
@with_session
def offers_command(session: Session, ask: str | None, history: bool, since: float) -> None:
    """List what GPUs can be launched, for an ASK such as A100:2 or 24GB.., or all.

    \b
    cumulo offers
    cumulo offers A100:2
    cumulo offers --history A100-80GB --since 7d
    """
    if history:
        _history(session, ask, since)
        return
    found = session.client.offers(ask)
    if session.as_json:
        session.print_json(found)
    elif not found:
        click.echo(f"Nothing here offers {clean(ask)}." if ask else "No GPUs here. Runs without GPUs can be launched.")
    else:
        click.echo(offers(found))


def _history(session: Session, kind: str | None, seconds: float) -> None:
    from cumulo.cli import history  # the catalogue, which a list of offers does not need

    found = history.of_kind(session.client.prices(since=str(seconds)), kind)
    if session.as_json:
        session.print_json(found)
    elif not found:
        click.echo(f"No spot price of {clean(kind or 'any GPU')} is known: they begin once the admin sets rates.")
    else:
        until = phrases.now()
        click.echo(history.drawn(found, since=until - timedelta(seconds=seconds), until=until))


def offers(found: tuple[Offer, ...]) -> str:
    columns = (
        Column("GPU"), Column("MODE"), Column("MEMORY", right=True), Column("ISOLATION"),
        Column("REGION", shrinks=True), Column("PURCHASE"), Column("PRICE/H", right=True),
        Column("RENTS FOR/H", right=True), Column("FREE", right=True), Column("PER NODE", right=True), Column("NOTE"),
    )  # fmt: skip
    rows = [
        [
            clean(offer.gpu), clean(f"{offer.mode} {offer.profile or _fraction(offer)}".strip()),
            phrases.gib(offer.memory_gb), offer.isolation, clean(offer.region), offer.purchase,
            phrases.usd(offer.price_usd_h), phrases.usd(offer.rental_usd_h), _available(offer),
            str(offer.max_per_node), _note(offer),
        ]
        for offer in found
    ]  # fmt: skip
    return render(columns, rows)


def _note(offer: Offer) -> str:
    if offer.shown_usd_h is not None and offer.shown_usd_h != offer.price_usd_h:
        return f"smoothed {phrases.usd(offer.shown_usd_h)}"
    if offer.term_s is not None:
        return f"for {format_duration(offer.term_s).removesuffix(' 0h')}, used or not"
    return "EMULATED" if offer.emulated else ""


def _fraction(offer: Offer) -> str:
    return f"{offer.milli / WHOLE_MILLI:g}" if offer.milli < WHOLE_MILLI else ""


def _available(offer: Offer) -> str:
    """`3 of 8`; of fractions of any size, how many GPUs' worth: `1.75 of 2`."""
    any_size = offer.mode in FRACTION_MODES and offer.milli == WHOLE_MILLI
    return f"{offer.free_milli / WHOLE_MILLI:g} of {offer.total}" if any_size else f"{offer.free} of {offer.total}"


@click.command("nodes")
@click.argument("name", required=False, metavar="[NODE]")
@watch_option
@with_session
def nodes_command(session: Session, name: str | None, watch: bool) -> None:
    """List nodes; or the devices of one NODE, and who holds each."""
    if session.as_json:
        session.print_json(session.client.node(name) if name else session.client.nodes())
        return
    show(lambda: node(session.client.node(name)) if name else nodes(session.client.nodes()), watch=watch)


def nodes(found: tuple[Node, ...]) -> str:
    """One row for each node, with its devices counted by model."""
    columns = (
        Column("NODE", shrinks=True), Column("REGION", shrinks=True), Column("STATE"),
        Column("GPUS FREE", shrinks=True), Column("CPUS FREE", right=True), Column("MEMORY FREE", right=True),
        Column("HELD BY", shrinks=True),
    )  # fmt: skip
    rows = []
    for one in found:
        holders = dict.fromkeys(clean(holder.name) for device in one.devices for holder in device.holders)
        rows.append(
            [
                clean(one.name), clean(one.region), f"{one.state} {clean(one.state_reason)}".strip(),
                _free(one.devices), f"{one.cpus_free:g} of {one.cpus:g}",
                f"{phrases.gib(one.memory_free_gb)} of {phrases.gib(one.memory_gb)}", ", ".join(holders) or DASH,
            ]
        )  # fmt: skip
    return render(columns, rows, status="STATE") if rows else "No nodes."


def _free(devices: tuple[Device, ...]) -> str:
    """`6 of 8 A100-80GB (emulated)`."""
    counts: dict[str, list[int]] = {}
    for device in devices:
        model = clean(device.model) + (" (emulated)" if device.emulated else "")
        total = counts.setdefault(model, [0, 0])
        total[1] += 1
        total[0] += not device.holders and not device.foreign and device.health == "ok"
    return ", ".join(f"{free} of {total} {model}" for model, (free, total) in counts.items()) or DASH


def node(one: Node) -> str:
    """One node with each of its devices."""
    columns = (
        Column("#", right=True), Column("MODEL"), Column("MEMORY", right=True), Column("HEALTH", shrinks=True),
        Column("MODE"), Column("HELD BY", shrinks=True), Column("UUID", shrinks=True),
    )  # fmt: skip
    rows = [
        [
            str(device.index), clean(device.model) + (" EMULATED" if device.emulated else ""),
            phrases.gib(device.memory_gb), f"{device.health} {clean(device.health_reason)}".strip(),
            device.mode or DASH, slices.holders(device.holders, device.foreign), clean(device.uuid),
        ]
        for device in one.devices
    ]  # fmt: skip
    parts = [nodes((one,))]
    parts += [render(columns, rows, status="HEALTH")] if rows else []
    shared = [text for device in one.devices if (text := slices.drawn(device))]
    parts += ["\n".join(shared)] if shared else []
    return "\n\n".join(parts)


@click.command("top")
@watch_option
@with_session
def top_command(session: Session, watch: bool) -> None:
    """Show what each device and each run uses now."""
    if session.as_json:
        session.print_json(session.client.telemetry())
        return
    show(lambda: top(session.client.telemetry()), watch=watch)


def top(found: Telemetry) -> str:
    """Devices above, instances below."""
    columns = (
        Column("NODE", shrinks=True), Column("#", right=True), Column("MODEL"), Column("BUSY", right=True),
        Column("MEMORY", right=True), Column("TEMP", right=True), Column("POWER", right=True),
        Column("HELD BY", shrinks=True),
    )  # fmt: skip
    devices = [
        [
            phrases.node(one.node), str(one.index), clean(one.model) + (" EMULATED" if one.emulated else ""),
            phrases.percent(one.utilisation), _memory(one.memory_used_bytes, one.memory_bytes),
            DASH if one.temperature_c is None else f"{one.temperature_c:.0f}°C",
            DASH if one.power_w is None else f"{one.power_w:.0f}W", slices.holders(one.holders, one.foreign),
        ]
        for one in found.devices
    ]  # fmt: skip
    columns_below = (
        Column("INSTANCE"), Column("NAME", shrinks=True), Column("GPUS", shrinks=True), Column("CPUS", right=True),
        Column("MEMORY", right=True), Column("PROCESSES", right=True),
    )  # fmt: skip
    instances = [
        [
            one.id, clean(one.name), clean(one.gpus) or DASH, DASH if one.cpu is None else f"{one.cpu:.2f}",
            _gib(one.memory_bytes), str(one.processes),
        ]
        for one in found.instances
    ]  # fmt: skip
    parts = [render(columns, devices)] if devices else []
    parts += [render(columns_below, instances)] if instances else ["No instance runs."]
    return "\n\n".join(parts)


def _gib(size: int | None) -> str:
    return phrases.gib(None if size is None else size / (1 << 30))


def _memory(used: int | None, total: int) -> str:
    return f"{_gib(used)} of {_gib(total)}"
