"""Accounts follow Unix users; tokens are shown once, kept hashed, and can be taken back."""

import pytest
from sqlalchemy import select

from cumulo.domain.errors import CumuloError
from cumulo.store import people
from cumulo.store.database import Conflict
from cumulo.store.tables import token
from tests.databases import NOW

SPOILT = {
    "empty": lambda text: "",
    "cut": lambda text: text[:-1],
    "longer": lambda text: text + "0",
    "other prefix": lambda text: text.replace("cumulo_", "other_"),
    "other secret": lambda text: text.rsplit("_", 1)[0] + "_" + "0" * 64,
    "no id": lambda text: "cumulo__" + text.rsplit("_", 1)[1],
    "no parts": lambda text: text.replace("_", "-"),
    "unknown id": lambda text: "cumulo_nobody_",
    "no character": lambda text: text.replace("_", "_\0"),
    "not text": lambda text: "\ud800",
}


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def ada(db):
    with db.write() as tx:
        return people.ensure_account(tx, name="ada", unix_uid=1000, admin=False, now=NOW)


@pytest.fixture
def secret(db, ada):
    with db.write() as tx:
        _, text = people.create_token(
            tx, account_name="ada", project_name="default", label="laptop", now=NOW, expires_at=NOW + 1000
        )
    return text


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def verifier(db, clock):
    return people.TokenVerifier(db, clock=clock)


def refusal(verifier, text):
    with pytest.raises(CumuloError) as refused:
        verifier.verify(text)
    assert refused.value.code == "unauthenticated"
    return refused.value.message


def test_a_unix_user_is_known_by_uid(db, ada):
    with db.read() as tx:
        assert people.account_for_uid(tx, 1000) == ada
        assert people.account_for_uid(tx, 1001) is None


def test_an_account_is_made_once(db, ada):
    with db.write() as tx:
        assert people.ensure_account(tx, name="ada", unix_uid=1000, admin=False, now=NOW) == ada
        assert people.accounts(tx) == (ada,)


def test_a_renamed_user_keeps_the_account(db, ada):
    with db.write() as tx:
        assert people.ensure_account(tx, name="ada.lovelace", unix_uid=1000, admin=False, now=NOW) == ada


def test_a_reused_name_is_somebody_else(db, ada):
    with db.write() as tx:
        other = people.ensure_account(tx, name="ada", unix_uid=1001, admin=False, now=NOW)
    assert (other.name, other.unix_uid) == ("ada-1001", 1001)


def test_admin_is_brought_up_to_date(db, ada):
    with db.write() as tx:
        people.ensure_account(tx, name="ada", unix_uid=1000, admin=True, now=NOW)
        found = people.find_account(tx, "ada")
    assert found == people.Account(name="ada", unix_uid=1000, admin=True)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a\n", "x" * 49])
def test_a_name_that_can_not_be_one(db, name):
    with pytest.raises(ValueError, match="can't be the name"), db.write() as tx:
        people.ensure_account(tx, name=name, unix_uid=None, admin=False, now=NOW)


def test_projects(db):
    with db.write() as tx:
        people.ensure_project(tx, "vision", created_by="ada", now=NOW)
        people.ensure_project(tx, "vision", created_by="ada", now=NOW)
        assert people.projects(tx) == ("default", "vision")
        assert people.project_exists(tx, "vision")
        assert not people.project_exists(tx, "audio")
        with pytest.raises(ValueError, match="can't be a name"):
            people.ensure_project(tx, "Vision!", created_by="ada", now=NOW)


def test_a_token_tells_who_calls(verifier, secret):
    caller = verifier.verify(secret)
    assert (caller.account, caller.project, caller.admin) == ("ada", "default", False)


def test_the_secret_is_nowhere_in_the_database(db, secret):
    _, token_id, hidden = secret.split("_")
    assert len(bytes.fromhex(hidden)) == 32
    with db.read() as tx:
        kept = tx.execute(select(token).where(token.c.id == token_id)).one()
        assert hidden not in repr(kept)
        assert hidden not in repr(people.tokens(tx))


@pytest.mark.parametrize("how", SPOILT)
def test_anything_else_is_refused(verifier, secret, how):
    verifier.verify(secret)
    assert refusal(verifier, SPOILT[how](secret)) == "the token is not valid"


def test_a_token_expires(verifier, secret, clock):
    verifier.verify(secret)
    clock.now += 1000
    assert refusal(verifier, secret) == "the token has expired"


def test_a_revoked_token_is_refused_at_once(db, verifier, secret, clock):
    token_id = verifier.verify(secret).token_id
    with db.write() as tx:
        people.revoke_token(tx, token_id, now=clock.now)
        people.revoke_token(tx, token_id, now=clock.now + 9)
    verifier.forget(token_id)
    assert refusal(verifier, secret) == "the token was revoked"
    with db.read() as tx:
        assert people.tokens(tx)[0].revoked_at == clock.now


def test_one_that_another_server_revoked_is_refused_within_seconds(db, verifier, secret, clock):
    token_id = verifier.verify(secret).token_id
    with db.write() as tx:
        people.revoke_token(tx, token_id, now=clock.now)
    clock.now += 5.1
    assert refusal(verifier, secret) == "the token was revoked"


def test_only_ones_own_token_can_be_revoked(db, secret):
    token_id = secret.split("_")[1]
    with db.write() as tx, pytest.raises(CumuloError) as refused:
        people.revoke_token(tx, token_id, account_name="bob", now=NOW)
    assert refused.value.code == "not_found"


def test_a_request_costs_no_write_and_mostly_no_read(db, verifier, secret, clock, monkeypatch):
    verifier.verify(secret)
    before = db.commits
    with monkeypatch.context() as closed:
        closed.setattr(db, "read", None)
        clock.now += 4
        verifier.verify(secret)
    clock.now += 50
    verifier.verify(secret)
    assert db.commits == before
    clock.now += 10
    verifier.verify(secret)
    assert db.commits == before + 1
    with db.read() as tx:
        assert people.tokens(tx)[0].used_at == clock.now


def test_a_busy_database_locks_nobody_out(db, verifier, secret, monkeypatch):
    def busy():
        raise Conflict("busy")

    monkeypatch.setattr(db, "write", busy)
    assert verifier.verify(secret).account == "ada"


def test_a_clock_that_is_set_back_extends_no_trust(db, verifier, secret, clock):
    token_id = verifier.verify(secret).token_id
    with db.write() as tx:
        people.revoke_token(tx, token_id, now=clock.now)
    clock.now -= 3600
    assert refusal(verifier, secret) == "the token was revoked"


def test_tokens_of_an_account_in_pages(db, ada):
    with db.write() as tx:
        people.ensure_account(tx, name="bob", unix_uid=None, admin=False, now=NOW)
        for name in ("ada", "ada", "bob"):
            people.create_token(tx, account_name=name, project_name="default", label="", now=NOW)
        first = people.tokens(tx, account_name="ada", limit=1)
        second = people.tokens(tx, account_name="ada", after=first[0].id, limit=1)
        assert [one.account for one in first + second] == ["ada", "ada"]
        assert len(people.tokens(tx)) == 3


@pytest.mark.parametrize(("account", "project"), [("nobody", "default"), ("ada", "nothing")])
def test_a_token_needs_an_account_and_a_project(db, ada, account, project):
    with db.write() as tx, pytest.raises(CumuloError, match="there is no"):
        people.create_token(tx, account_name=account, project_name=project, label="", now=NOW)
