"""Which GPU, how many, how long, how much."""

from fastapi import APIRouter
from starlette.responses import Response

from cumulo.server import render
from cumulo.server.auth import Auth
from cumulo.server.services import Serving
from cumulo.wire import api

router = APIRouter(tags=["advice"])


@router.post("/v1/advice", response_model=api.Advice)
def advice(body: api.AdviceQuestion, services: Serving, _caller: Auth) -> Response:
    """What to take for a piece of work: this cloud's GPUs first, what public clouds list beside them."""
    from cumulo.server import advising  # some 45 ms, which a server that nobody asks need not take to start

    return render.answer(advising.answered(body, services.control.offers(None)))
