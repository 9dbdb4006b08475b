"""The queue: a list worked out from the loop's picture when somebody asks."""

from cumulo.control.answers import QueueRow
from cumulo.control.deciding import decide
from cumulo.control.explain import waiting_units, why_waiting
from cumulo.control.live import LiveRun, Picture
from cumulo.control.yielding import makes_room
from cumulo.domain.ask import Ask
from cumulo.domain.lifecycle import RunStatus
from cumulo.placement.explain import reasons
from cumulo.placement.forecast import forecast


def queue_rows(seen: Picture, now: float) -> tuple[QueueRow, ...]:
    """The runs that wait, each once, in order: first those that may start, then those that may not yet."""
    rows: dict[str, QueueRow] = {}
    texts: dict[Ask, str] = {}
    queue = list(waiting_units(seen, now))
    decided, past = decide(seen, queue, now), seen.learning.past
    told = forecast(seen.world, queue, decided, now=now, past=past, policy=seen.rules.policy)
    held_back = {held.waiting.key: held.text for held in decided.held_back}
    expected: dict[str, float] = {}
    for key, when in told.items():
        expected[key[0]] = min(when.likely, expected.get(key[0], when.likely))
    for waiting in queue:
        run = seen.runs[waiting.key[0]]
        if run.id not in rows:
            room = makes_room(seen, decided, waiting.key, now)
            text = room.text if room else held_back.get(waiting.key)
            if text is None:
                text = texts.get(waiting.ask) or texts.setdefault(
                    waiting.ask, reasons(seen.world, waiting.ask).summary()
                )
            rows[run.id] = _queue_row(len(rows) + 1, run, text, room.by if room else expected.get(run.id))
    for run in seen.runs.values():
        not_yet = run.waits_for or run.held or run.status is RunStatus.RECOVERING
        if not_yet and run.id not in rows and run.wanted == "running":
            rows[run.id] = _queue_row(len(rows) + 1, run, why_waiting(seen, run, now).summary, None)
    return tuple(rows.values())


def _queue_row(place: int, run: LiveRun, text: str, expected: float | None) -> QueueRow:
    return QueueRow(
        place=place,
        run_id=run.id,
        name=run.spec.name,
        account=run.account,
        kind=str(run.spec.kind),
        ask=run.spec.ask.describe(),
        priority=run.spec.priority,
        accepted_at=run.accepted_at,
        waiting_for=text,
        expected_start=expected,
    )
