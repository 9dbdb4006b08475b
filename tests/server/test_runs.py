"""Submitting, listing, looking at and changing runs, over HTTP."""

import json
import threading

import pytest

from cumulo.wire import api


def problem(answer, code, status=None):
    assert answer.headers["content-type"] == "application/problem+json"
    told = api.Problem.model_validate(answer.json)
    assert told.code == code, told
    assert answer.status == (status or told.status)
    return told


def test_a_run_is_answered_whole_and_can_be_found_again(box):
    answer = box.ask("POST", "/v1/runs", {"run": {"name": "first", "run": "true", "gpu": "A100:2", "env": {"A": "x"}}})
    assert answer.status == 201
    run = api.Run.model_validate(answer.json)
    assert answer.headers["location"] == f"/v1/runs/{run.id}"
    assert (run.name, run.account, run.ask) == ("first", "owner", "A100:2")
    assert run.spec
    assert run.spec.env == ["A"]
    assert '"x"' not in answer.body.decode()
    box.await_status("first", "running")
    assert box.get("/v1/runs/first")["id"] == run.id


def test_a_run_goes_through_its_life(box):
    run, instance = box.running({"name": "life", "gpu": 1})
    box.engine.finish(instance, 3, message="it exited with code 3")
    row = api.Run.model_validate(box.await_status(run, "failed"))
    assert (row.exit_code, row.reason, row.units_failed) == (3, "failed", 1)
    times = [row.accepted_at, row.placed_at, row.started_at, row.ended_at]
    assert None not in times
    assert times == sorted(times, key=str)
    assert row.instances[0].exit_code == 3
    assert row.instances[0].devices
    why = api.Why.model_validate(box.get(f"/v1/runs/{run}/why"))
    assert why.ended
    assert "code 3" in why.summary


def test_the_same_key_gives_the_same_run(box):
    body = {"run": {"name": "once", "run": "true"}}
    first = box.ask("POST", "/v1/runs", body, headers={"Idempotency-Key": "k1"})
    again = box.ask("POST", "/v1/runs", body, headers={"Idempotency-Key": "k1"})
    assert (first.status, again.status) == (201, 200)
    assert first.json["id"] == again.json["id"]
    other = box.ask("POST", "/v1/runs", {"run": {"run": "false"}}, headers={"Idempotency-Key": "k1"})
    problem(other, "idempotency_mismatch", 409)


def test_a_key_pressed_by_many_at_once_is_one_run(box):
    ids = []

    def press():
        answer = box.ask("POST", "/v1/runs", {"run": {"run": "true"}}, headers={"Idempotency-Key": "many"})
        ids.append(answer.json.get("id"))

    threads = [threading.Thread(target=press) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 1


def test_a_plan_says_where_and_changes_nothing(box):
    before = len(box.get("/v1/runs?limit=500")["items"])
    answer = box.ask("POST", "/v1/plans", {"run": {"run": "true", "gpu": "A100:2", "workdir": "."}})
    plan = api.Plan.model_validate(answer.json)
    assert plan.satisfiable
    assert plan.starts_now
    assert "A100-80GB" in plan.choices[0].devices
    assert len(box.get("/v1/runs?limit=500")["items"]) == before


def test_an_ask_that_can_never_fit_is_planned_but_not_accepted_unless_queued(box):
    run = {"run": "true", "gpu": "A100:3"}
    plan = api.Plan.model_validate(box.ask("POST", "/v1/plans", {"run": run}).json)
    assert not plan.satisfiable
    assert plan.problems
    refused = problem(box.ask("POST", "/v1/runs", {"run": run}), "unsatisfiable", 409)
    assert refused.hint
    queued = box.submit({"gpu": "A100:3", "name": "patient"}, queue=True)
    assert queued["status"] == "queued"
    row = api.QueueRow.model_validate(box.get("/v1/queue")["items"][0])
    assert row.name == "patient"
    assert row.waiting_for
    why = api.Why.model_validate(box.get("/v1/runs/patient/why"))
    assert why.counts
    assert why.nodes
    assert box.ask("PATCH", "/v1/runs/patient", {"wanted": "cancelled"}).status == 200
    box.await_status("patient", "cancelled")


def test_lists_are_paged_without_repeats_while_runs_arrive(box):
    names = {box.submit({"name": f"page-{n}"})["id"] for n in range(7)}
    seen, cursor = [], None
    while True:
        page = box.get(f"/v1/runs?limit=3{'&cursor=' + cursor if cursor else ''}")
        api.RunPage.model_validate(page)
        seen += [row["id"] for row in page["items"]]
        if not (cursor := page["next"]):
            break
        box.submit({"name": "newcomer"})
    assert names <= set(seen)
    assert len(seen) == len(set(seen))


def test_lists_are_filtered(box):
    run, instance = box.running({"name": "filtered"})
    assert [row["id"] for row in box.get("/v1/runs?name=filtered&status=running,starting")["items"]] == [run]
    assert box.get("/v1/runs?name=filtered&kind=dev")["items"] == []
    assert [row["id"] for row in box.get("/v1/runs?name=filtered&active=true")["items"]] == [run]
    box.engine.finish(instance)
    box.await_status(run, "succeeded")
    assert box.get("/v1/runs?name=filtered&active=true")["items"] == []
    assert len(box.get("/v1/runs?name=filtered&active=true&recent_s=600")["items"]) == 1
    assert box.get("/v1/runs?name=filtered&mine=true")["items"]


def test_a_name_means_ones_own_newest_run(box):
    mine = box.submit({"name": "shared"})["id"]
    theirs = box.submit({"name": "shared"}, token=box.token_of("neighbour"))["id"]
    assert box.get("/v1/runs/shared")["id"] == mine
    assert box.get("/v1/runs/shared", token=box.token_of("neighbour"))["id"] == theirs
    assert box.get("/v1/runs/shared", token=box.token_of("third"))["id"] == theirs  # the newest of anybody's


def test_an_array_is_one_row_with_counts_and_units(box):
    run = box.submit({"name": "sweep", "array": "10-30:10"})["id"]
    box.await_status(run, "running")
    for place in range(3):
        box.engine.finish(f"{run}-{place}-1-0", place)
    row = box.await_status(run, "failed")
    assert (row["units"], row["units_succeeded"], row["units_failed"]) == (3, 1, 2)
    units = api.UnitPage.model_validate(box.get(f"/v1/runs/{run}/units"))
    assert [(unit.index, unit.exit_code) for unit in units.items] == [(10, 0), (20, 1), (30, 2)]
    first = box.get(f"/v1/runs/{run}/units?limit=2")
    rest = box.get(f"/v1/runs/{run}/units?limit=2&cursor={first['next']}")
    assert [unit["index"] for unit in first["items"] + rest["items"]] == [10, 20, 30]
    instances = api.InstancePage.model_validate(box.get(f"/v1/runs/{run}/instances"))
    assert [instance.unit for instance in instances.items] == [10, 20, 30]


def test_one_index_of_an_array_is_cancelled(box):
    run = box.submit({"name": "partly", "array": "0-2"})["id"]
    box.await_status(run, "running")
    assert box.ask("PATCH", f"/v1/runs/{run}", {"wanted": "cancelled", "unit": 1}).status == 200
    refused = box.ask("PATCH", f"/v1/runs/{run}", {"wanted": "cancelled", "unit": 9})
    assert "has no index 9; it has 0-2" in problem(refused, "invalid_request").detail


def test_cancelling_what_has_ended_says_how_it_ended(box):
    run, instance = box.running()
    box.engine.finish(instance)
    box.await_status(run, "succeeded")
    answer = box.ask("PATCH", f"/v1/runs/{run}", {"wanted": "cancelled"})
    assert "succeeded" in problem(answer, "conflict", 409).detail


def test_only_dev_runs_stop_and_start(box):
    run, _ = box.running()
    problem(box.ask("PATCH", f"/v1/runs/{run}", {"wanted": "stopped"}), "conflict")
    dev, _ = box.running({"name": "desk", "kind": "dev"})
    assert box.ask("PATCH", f"/v1/runs/{dev}", {"wanted": "stopped"}).status == 200
    box.await_status(dev, "stopped")
    assert box.ask("PATCH", f"/v1/runs/{dev}", {"wanted": "running"}).status == 200
    box.await_status(dev, "running")


def test_after_waits_for_the_run_it_names(box):
    first, instance = box.running({"name": "before"})
    second = box.submit({"name": "behind", "after": "before"})
    assert second["status"] == "queued"
    assert second["spec"]["after"] == [first]
    box.engine.finish(instance)
    box.await_status(second["id"], "running")


def test_what_is_missing_is_told_by_name(box):
    box.submit({"name": "trainer"})
    told = problem(box.ask("GET", "/v1/runs/trianer"), "run_not_found", 404)
    assert told.hint == "did you mean trainer?"
    problem(box.ask("POST", "/v1/runs", {"run": {"run": "x", "after": "nobody"}}), "run_not_found")
    problem(box.ask("POST", "/v1/runs", {"run": {"run": "x", "project": "ghost"}}), "not_found")
    digest = "ab" * 32
    told = problem(
        box.ask("POST", "/v1/runs", {"run": {"run": "x", "workdir": {"manifest": digest}}}), "invalid_request"
    )
    assert digest in told.detail


def test_an_unknown_gpu_is_answered_with_one_that_exists(box):
    told = problem(box.ask("POST", "/v1/runs", {"run": {"run": "x", "gpu": "A1000-80GB"}}), "unknown_gpu", 422)
    assert "A1" in told.hint
    problem(box.ask("POST", "/v1/plans", {"run": {"run": "x", "gpu": "A1000-80GB"}}), "unknown_gpu")


@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        (b"", "invalid_request", "is missing"),
        (b"{", "invalid_request", "the body is not valid JSON"),
        (b"[]", "invalid_request", ""),
        (b"\xff\xfe", "invalid_request", ""),
        (b'{"run": {"run": "x"}, "que": true}', "invalid_request", "que"),
        (b'{"run": {"run": "x", "acelerators": 1}}', "invalid_run_file", "acelerators: is not known"),
        (b'{"run": {"run": "x", "name": "a\\nb"}}', "invalid_run_file", "name: 'a?b' can't be a name"),
        (b'{"run": {"run": "x", "gpu": "A100:8:9"}}', "invalid_run_file", "gpu: in 'A100:8:9'"),
        (b'{"run": {"run": "x", "resources": {"accelerators": ":"}}}', "invalid_ask", "resources.accelerators"),
        (b'{"run": {"run": "x", "service": {}}}', "not_supported_yet", "service: "),
        (b'{"run": {"run": "x", "gpu": "T4:mig-1g.10gb"}}', "invalid_run_file", "gpu: T4 has no MIG"),
        (b'{"run": {"priority": 1}}', "invalid_run_file", "run: is missing"),
        (b'{"run": {"run": "x", "workdir": "."}}', "invalid_run_file", "workdir: is a path"),
        (b'{"run": null}', "invalid_run_file", ""),
        (b'{"run": {"run": "x", "priority": 1e999}}', "invalid_run_file", "priority"),
    ],
)
def test_a_wrong_body_is_a_problem_in_one_line(box, body, code, told):
    for path in ("/v1/runs", "/v1/plans"):
        if path == "/v1/plans" and b'"workdir"' in body:
            continue  # a plan needs no upload
        answer = box.ask("POST", path, body, headers={"Content-Type": "application/json"})
        found = problem(answer, code, 422)
        assert told in found.detail
        assert "\n" not in found.detail


@pytest.mark.parametrize("body", [b'{"run": {"run": "x", "priority": ' + b"9" * 5000 + b"}}", b"[" * 100_000])
def test_json_that_no_parser_takes_is_a_problem_too(box, body):
    problem(box.ask("POST", "/v1/runs", body, headers={"Content-Type": "application/json"}), "invalid_request", 400)


def test_a_body_beyond_all_measure_is_cut_off(box):
    huge = b'"' + b"x" * (5 << 20) + b'"'
    problem(box.ask("POST", "/v1/runs", huge, headers={"Content-Type": "application/json"}), "too_large", 413)


def test_a_body_that_does_not_say_its_length_is_cut_off_as_well(box):
    connection = box.connection()
    headers = {"Authorization": f"Bearer {box.token}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/runs", (b"x" * 65536 for _ in range(80)), headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=501", "limit=x", "cursor=nonsense", "cursor=WzFd", "status=lazy", "kind=service2",
        "recent_s=-1", "active=perhaps", "recent_s=nan",
    ],
)  # fmt: skip
def test_a_wrong_query_is_a_problem(box, query):
    problem(box.ask("GET", f"/v1/runs?{query}"), "invalid_request", 422)


def test_a_misspelt_filter_is_not_ignored(box):
    told = problem(box.ask("GET", "/v1/runs?stauts=failed"), "invalid_request", 422)
    assert told.hint == "did you mean 'status'?"


def test_no_such_url_and_no_such_verb(box):
    problem(box.ask("GET", "/v2/runs"), "not_found", 404)
    answer = box.ask("PUT", "/v1/runs")
    problem(answer, "invalid_request", 405)
    assert "POST" in answer.headers["allow"]


def test_every_answer_of_a_list_has_the_shape_that_openapi_tells(box):
    box.running({"name": "shape", "gpu": 1})
    api.RunPage.model_validate(box.get("/v1/runs"))
    api.NodePage.model_validate(box.get("/v1/nodes"))
    api.Node.model_validate(box.get("/v1/nodes/one"))
    api.Node.model_validate(box.get("/v1/nodes/local/one"))
    api.Offers.model_validate(box.get("/v1/offers"))
    api.Telemetry.model_validate(box.get("/v1/telemetry"))
    api.EventPage.model_validate(box.get("/v1/events"))
    api.Usage.model_validate(box.get("/v1/usage?group=account"))
    api.Checks.model_validate(box.get("/v1/doctor"))
    api.StorageRows.model_validate(box.get("/v1/storage"))
    api.Me.model_validate(box.get("/v1/me"))
    api.Health.model_validate(box.get("/v1/health", token=""))
    api.Names.model_validate(box.get("/v1/names?beginning=sh"))
    held = [holder for device in box.get("/v1/nodes/one")["devices"] for holder in device["holders"]]
    assert held
    assert held[0]["name"] == "shape"
    assert box.get("/openapi.json", token="")["openapi"].startswith("3.1")


def test_a_list_of_fifty_is_plain_and_complete(box):
    for number in range(50):
        box.submit({"name": f"fifty-{number}"})
    page = box.get("/v1/runs?limit=50")
    assert len(page["items"]) == 50
    assert len(json.dumps(page)) < 60_000


def test_a_loop_that_does_not_answer_in_time_is_a_problem_that_passes(box, monkeypatch):
    def never(*_):
        raise TimeoutError

    monkeypatch.setattr(box.control, "queue", never)
    answer = box.ask("GET", "/v1/queue")
    problem(answer, "starting", 503)
    assert answer.headers["retry-after"] == "1"


def test_a_fault_of_our_own_tells_a_number_and_nothing_else(box, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("the secret is hunter2")

    monkeypatch.setattr(box.control, "queue", broken)
    told = problem(box.ask("GET", "/v1/queue"), "internal", 500)
    assert "hunter2" not in told.detail
    number = told.detail.split("fault ")[1].rstrip(")")
    assert number in caplog.text
    assert box.get("/v1/health", token="")["status"] == "ok"
