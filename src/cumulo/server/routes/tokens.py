"""Tokens, for whoever comes over TCP. A token's text is in the answer that makes it and nowhere else."""

import time

from fastapi import APIRouter
from starlette.responses import Response

from cumulo.server import render
from cumulo.server.auth import Auth, require_admin
from cumulo.server.paging import Cursor, Limit, cursor_of, key_of
from cumulo.server.services import Serving
from cumulo.store import people
from cumulo.wire import api

router = APIRouter(tags=["tokens"])


@router.get("/v1/tokens", response_model=api.TokenPage)
def list_tokens(services: Serving, caller: Auth, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """The caller's own; an admin sees everybody's."""
    after = key_of(cursor, str)[0] if cursor else ""
    with services.db.read() as tx:
        rows = people.tokens(tx, account_name=None if caller.admin else caller.account, after=after, limit=limit)
    return render.page([render.token(one) for one in rows], cursor_of(rows[-1].id) if len(rows) == limit else None)


@router.post("/v1/tokens", response_model=api.CreatedToken, status_code=201)
def create_token(body: api.NewToken, services: Serving, caller: Auth) -> Response:
    account = body.account or caller.account
    if account != caller.account:
        require_admin(caller, "make tokens for other accounts")
    now = time.time()
    with services.db.write() as tx:
        made, text = people.create_token(
            tx,
            account_name=account,
            project_name=caller.project,
            label=body.label,
            now=now,
            expires_at=now + body.expires_in_s if body.expires_in_s is not None else None,
        )
    told = {"id": made.id, "label": made.label, "account": made.account, "token": text}
    return render.answer({**told, "expires_at": render.time_of(made.expires_at)}, 201)


@router.delete("/v1/tokens/{token_id}", status_code=204)
def revoke_token(token_id: str, services: Serving, caller: Auth) -> Response:
    """Revokes a token for good; it is refused from the next request on."""
    with services.db.write() as tx:
        people.revoke_token(tx, token_id, account_name=None if caller.admin else caller.account, now=time.time())
    services.verifier.forget(token_id)
    return Response(status_code=204)
