"""Who may come in, as whom, and what a web page can't do."""

import os
import socket
import struct
import time

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.server import listen
from cumulo.server.auth import UnixUsers, peer_uid, unix_name
from cumulo.wire import api
from tests.server.box import Box, OverSocket
from tests.server.test_runs import problem


def over_socket(box, method, path, headers=None, body=None):
    connection = OverSocket(box.socket)
    answer = box.ask(method, path, body, token="", headers=headers, connection=connection)
    connection.close()
    return answer


def test_tcp_needs_a_token_even_on_loopback(box):
    answer = box.ask("GET", "/v1/runs", token="")
    problem(answer, "unauthenticated", 401)
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic abc",
        "Bearer cumulo_x_y",
        "Bearer " + "x" * 5000,
        "Bearer cumulo__",
        "Bearer \u00e9",
    ],
)
def test_what_is_no_token_is_refused(box, header):
    answer = box.ask("GET", "/v1/me", token="", headers={"Authorization": header.encode("utf-8")})
    problem(answer, "unauthenticated", 401)


def test_the_socket_knows_its_peer_without_a_token(box):
    me = api.Me.model_validate(over_socket(box, "GET", "/v1/me").json)
    assert me.account == me.unix_user == unix_name(os.geteuid())
    assert me.admin


def test_a_token_over_the_socket_says_who_instead(box):
    token = box.token_of("somebody")
    answer = over_socket(box, "GET", "/v1/me", {"Authorization": f"Bearer {token}"})
    assert answer.json["account"] == "somebody"


def test_nobody_over_tcp_can_pretend_to_be_a_peer(box):
    forged = {"X-Forwarded-For": "uid:0", "X-Real-IP": "uid:0", "Forwarded": "for=uid:0"}
    problem(box.ask("GET", "/v1/me", token="", headers=forged), "unauthenticated", 401)
    assert peer_uid({"client": ("127.0.0.1", 5)}) is None
    assert peer_uid({"client": ("uid:1000", 5)}) == 1000
    assert peer_uid({"client": None}) is None


def _ask_as(uid, path, request):
    """Bytes answered to a process of another uid."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(uid)
            os.setuid(uid)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect(path)
                connection.sendall(request)
                while data := connection.recv(65536):
                    os.write(writing, data)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return answer


ME = b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_knows_every_user_by_uid(tmp_path):
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o011)
    box = Box(tmp_path, owner_uid=0)
    try:
        answer = _ask_as(4242, str(box.socket), ME)
        assert b'"account":"uid-4242"' in answer
        assert b'"admin":false' in answer
        assert b'"admin":true' in _ask_as(0, str(box.socket), ME)
    finally:
        box.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_ordinary_users_server_serves_that_user_alone(tmp_path):
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o011)
    box = Box(tmp_path, owner_uid=4242)
    try:
        assert b'"admin":true' in _ask_as(4242, str(box.socket), ME)
        assert b"403" in _ask_as(4243, str(box.socket), ME).split(b"\r\n")[0]
    finally:
        box.close()


def test_the_rule_of_who_is_served():
    UnixUsers(owner_uid=0).check(1234)
    UnixUsers(owner_uid=1000).check(1000)
    UnixUsers(owner_uid=1000).check(0)
    with pytest.raises(CumuloError, match="alone"):
        UnixUsers(owner_uid=1000).check(1001)
    assert not UnixUsers(owner_uid=0).admin(1234)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[::1", "169.254.169.254"]
)
def test_a_page_that_points_its_name_at_us_is_refused(box, host):
    for path in ("/v1/health", "/v1/runs", "/openapi.json"):
        problem(box.ask("GET", path, headers={"Host": host}), "forbidden", 403)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:80", "[::1]:99", "LOCALHOST:1"])
def test_this_machine_may_be_named_in_every_way(box, host):
    assert box.ask("GET", "/v1/health", headers={"Host": host}).status == 200


def test_no_other_origin_is_invited(box):
    answer = box.ask(
        "OPTIONS", "/v1/runs", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_tokens_are_made_used_listed_and_revoked(box):
    answer = box.ask("POST", "/v1/tokens", {"label": "laptop", "expires_in_s": 3600})
    assert answer.status == 201
    made = api.CreatedToken.model_validate(answer.json)
    assert box.get("/v1/me", token=made.token)["account"] == "owner"
    listed = box.ask("GET", "/v1/tokens?limit=500")
    tokens = api.TokenPage.model_validate(listed.json)
    assert made.id in [token.id for token in tokens.items]
    assert made.token.rsplit("_", 1)[1] not in listed.body.decode()
    assert box.ask("DELETE", f"/v1/tokens/{made.id}").status == 204
    problem(box.ask("GET", "/v1/me", token=made.token), "unauthenticated", 401)
    problem(box.ask("DELETE", "/v1/tokens/nosuchtoken"), "not_found", 404)


def test_who_is_no_admin_sees_and_makes_only_own_tokens(box):
    guest = box.token_of("guest")
    accounts = {token["account"] for token in box.get("/v1/tokens?limit=500", token=guest)["items"]}
    assert accounts == {"guest"}
    problem(box.ask("POST", "/v1/tokens", {"label": "x", "account": "owner"}, token=guest), "forbidden", 403)
    owners = box.get("/v1/tokens")["items"][0]["id"]
    mine = {token["id"] for token in box.get("/v1/tokens?limit=500", token=guest)["items"]}
    if owners not in mine:
        problem(box.ask("DELETE", f"/v1/tokens/{owners}", token=guest), "not_found", 404)
    problem(box.ask("POST", "/v1/storage/sweep", {}, token=guest), "forbidden", 403)
    problem(box.ask("POST", "/v1/tokens", {"label": "x", "account": "ghost"}), "not_found", 404)
    problem(box.ask("POST", "/v1/tokens", {"label": "a\u001b[31m"}), "invalid_request", 422)


def test_a_guest_sees_only_own_use(box):
    run, instance = box.running({"gpu": 1})
    time.sleep(0.05)
    box.engine.finish(instance)
    box.await_status(run, "succeeded")
    assert run in [row["key"] for row in box.get("/v1/usage?since=60")["items"]]
    assert box.get("/v1/usage?since=60", token=box.token_of("other"))["items"] == []
    problem(box.ask("GET", "/v1/usage?since=10&until=3600"), "invalid_request", 422)


def test_peer_credentials_come_from_the_kernel():
    ours, theirs = socket.socketpair(socket.AF_UNIX)

    class Transport:
        def get_extra_info(self, name):
            return ours if name == "socket" else None

    assert listen.peer_of(Transport()) == (f"uid:{os.geteuid()}", os.getpid())
    assert struct.calcsize("3i") == 12
    ours.close()
    theirs.close()
