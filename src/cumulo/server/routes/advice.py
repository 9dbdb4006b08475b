"""Which GPU, how many, how long, how much."""

from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from cumulo.advisor.advise import advise
from cumulo.advisor.answer import Advice
from cumulo.advisor.launchable import run_of
from cumulo.server import asking, render, render_advice
from cumulo.server.auth import Auth
from cumulo.server.services import Serving
from cumulo.server.subjects import Asked, subject_of
from cumulo.wire import api

router = APIRouter(tags=["advice"])


@router.post("/v1/advice", response_model=api.Advice)
def advice(body: api.AdviceQuestion, services: Serving, _caller: Auth) -> Response:
    """What to take for a piece of work: this cloud's GPUs first, what public clouds list beside them."""
    asked = subject_of(body)
    wanted = asking.wanted(body.limits, most=asked.most)
    if asked.kinds and not wanted.kinds:
        wanted = replace(wanted, kinds=asked.kinds)
    market = asking.market(services.control.offers(None), body.limits, wanted)
    answer = advise(asked.subject, market, wanted, limit=body.limit)
    return render.answer(render_advice.advice(answer, wanted, _launch(answer, asked)))


def _launch(answer: Advice, asked: Asked) -> dict[str, Any] | None:
    """A run file for the best of one's own, else of what can be rented."""
    plan = answer.own or answer.rented
    if plan is None:
        return None
    return run_of(plan, name=asked.name, command=asked.command, more=asked.more)
