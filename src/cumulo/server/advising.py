"""A question answered: what it asks of the advisor, the market it is asked on, the answer as JSON.

The route imports this when somebody first asks, since the advisor takes longer to import than most of the server.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cumulo.advisor.advise import advise
from cumulo.advisor.answer import Advice
from cumulo.advisor.launchable import run_of
from cumulo.control.answers import Offer
from cumulo.server import asking, render_advice
from cumulo.server.subjects import Asked, subject_of
from cumulo.wire import api


def answered(question: api.AdviceQuestion, offers: Iterable[Offer]) -> dict[str, Any]:
    """Shaped as `cumulo.wire.api.advice` says; `offers` are this cloud's."""
    asked = subject_of(question)
    wanted = asking.wanted(question.limits, most=asked.most)
    if asked.kinds and not wanted.kinds:
        wanted = replace(wanted, kinds=asked.kinds)
    market = asking.market(offers, question.limits, wanted)
    answer = advise(asked.subject, market, wanted, limit=question.limit)
    return render_advice.advice(answer, wanted, _launch(answer, asked))


def _launch(answer: Advice, asked: Asked) -> dict[str, Any] | None:
    """A run file for the best of one's own, else of what can be rented."""
    plan = answer.own or answer.rented
    if plan is None:
        return None
    return run_of(plan, name=asked.name, command=asked.command, more=asked.more)
