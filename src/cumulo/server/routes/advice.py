"""Which GPU, how many, how long, how much."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from cumulo.advisor.advise import Subject, advise
from cumulo.advisor.answer import Advice
from cumulo.advisor.launchable import run_of
from cumulo.advisor.search_training import TrainingEstimator
from cumulo.catalog.coefficients import coefficients
from cumulo.server import asking, render, render_advice
from cumulo.server.auth import Auth
from cumulo.server.services import Serving
from cumulo.wire import api

router = APIRouter(tags=["advice"])

_ONE_NODE = 8


@router.post("/v1/advice", response_model=api.Advice)
def advice(body: api.AdviceQuestion, services: Serving, _caller: Auth) -> Response:
    """What to take for a piece of work: this cloud's GPUs first, what public clouds list beside them."""
    subject, most, name = _subject(body)
    wanted = asking.wanted(body.limits, most=most)
    market = asking.market(services.control.offers(None), body.limits, wanted)
    answer = advise(subject, market, wanted, limit=body.limit)
    return render.answer(render_advice.advice(answer, wanted, _launch(answer, name)))


def _subject(body: api.AdviceQuestion) -> tuple[Subject, int | None, str]:
    """What is asked about, the most GPUs where none are named, and a name for the run."""
    assert body.train is not None  # noqa: S101 (the body has checked that one is given)
    question = asking.train(body.train)
    most = None if question.method == "full" else _ONE_NODE
    subject = TrainingEstimator(question=question, coefficients=coefficients())
    return subject, most, f"{question.method}-{question.shape.name}"


def _launch(answer: Advice, name: str) -> dict[str, Any] | None:
    plan = answer.own or answer.rented
    return None if plan is None else run_of(plan, work="train", name=name)
