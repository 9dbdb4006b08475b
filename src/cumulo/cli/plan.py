"""The plan of a launch as a person reads it before saying yes: what, where, when, at what price."""

from cumulo.cli import phrases
from cumulo.cli.phrases import clean
from cumulo.cli.tables import pairs, styled
from cumulo.client.answers.planning import Choice, Plan
from cumulo.client.run_file import Draft
from cumulo.domain.quantities import format_duration


def text(plan: Plan, drafted: Draft) -> str:
    """The plan, short: one line for each thing worth knowing."""
    command = str(drafted.data.get("run") or "").strip()
    first = command.split("\n")[0]
    shown = first if first == command else f"{first} …"
    rows = [
        ("run", clean(shown)[:100]),
        ("ask", _ask(plan)),
        ("where", where(plan)),
        ("start", start(plan)),
        ("price", price(plan)),
        ("deadline", phrases.deadline(plan.deadline, since=phrases.now()) if plan.deadline else ""),
        ("work", format_duration(plan.deadline.work_s) if plan.deadline and plan.deadline.work_s else ""),
        ("files", files(drafted)),
        ("runtime", clean(plan.runtime or "")),
        ("limit", f"each attempt at most {format_duration(plan.max_duration_s)}" if plan.max_duration_s else ""),
    ]
    head = f"{styled(clean(plan.name), 'bold')} ({plan.kind})"
    return "\n".join([head, pairs(rows), *(styled(f"warning: {clean(text)}", "yellow") for text in plan.warnings)])


def problems(plan: Plan) -> str:
    """Why the ask can't be met, in one line."""
    told = "; ".join(clean(problem).rstrip(".") for problem in plan.problems)
    return f"no node here could ever take it: {told}" if told else "no node here could ever take it"


def suggestions(plan: Plan) -> str:
    return "; ".join(clean(suggestion) for suggestion in plan.suggestions)


def where(plan: Plan) -> str:
    """The first choice, and how many more there are."""
    if not plan.choices:
        return ""
    choice = plan.choices[0]
    place = f"{clean(choice.node)} in {clean(choice.region)}" if choice.node else clean(choice.region)
    text = f"{clean(choice.devices)} on {place}" if choice.devices else place
    more = len(plan.choices) - 1
    return f"{text}, or {phrases.plural(more, 'other place')}" if more else text


def start(plan: Plan) -> str:
    if not plan.satisfiable:
        return f"not before the nodes change: {problems(plan)}"
    if plan.starts_now:
        return "now"
    text = "waits"
    if plan.queue_position:
        text += f", number {plan.queue_position} in the queue"
    if plan.expected_start:
        since = phrases.now()
        text += ", expected "
        text += phrases.expected(plan.expected_start, plan.expected_earliest, plan.expected_latest, since=since)
    if plan.problems:
        text += f"; {clean(plan.problems[0])}"
    return text


def price(plan: Plan) -> str:
    """What it costs an hour here, beside what the same hardware rents for."""
    if not plan.choices:
        return ""
    choice = plan.choices[0]
    bid = "" if plan.max_price_usd_h is None else f"your bid of {phrases.usd(plan.max_price_usd_h)} a GPU"
    if "(emulated)" in choice.devices:
        return "none: emulated devices have no price" + (f"; {bid} only says who goes first" if bid else "")
    if choice.price_usd_h is None:
        return ""
    own = f"{phrases.usd(choice.price_usd_h)}/h"
    if plan.purchase == "reserved":
        own = "$0.00/h: its reservation is paid for, used or not"
    elif choice.price_usd_h == 0:
        own = "$0.00/h, your own hardware" + (f"; {bid} only says who goes first" if bid else "")
    elif plan.purchase == "spot":
        own += f" as spot now, never more than {bid or 'on demand'}"
    return own + _rent(choice)


def _rent(choice: Choice) -> str:
    return f" (the same rents for about {phrases.usd(choice.rental_usd_h)}/h)" if choice.rental_usd_h else ""


def files(drafted: Draft) -> str:
    if not drafted.trees:
        return ""
    roots = ", ".join(dict.fromkeys(clean(tree.root) for tree in drafted.trees.values()))
    return f"{roots}: {phrases.plural(drafted.files, 'file')}, {phrases.size(drafted.size)}"


def _ask(plan: Plan) -> str:
    times = f"{plan.units:,} times " if plan.units > 1 else ""
    return f"{times}{clean(plan.ask)}"
