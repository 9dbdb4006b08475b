"""What people may write in a run file, what it becomes, and what they are told when it is wrong."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.ask import GpuAsk
from cumulo.domain.errors import CumuloError
from cumulo.domain.quantities import GIB
from cumulo.domain.run import Array, FileMount, PurchaseOption, Retry, RunKind
from cumulo.domain.sharing import Isolation, SharingMode
from cumulo.wire.run_file import read_run_file, schema, to_spec

DIGEST = "ab" * 32
SCHEMA = Path(__file__).parents[2] / "docs" / "run-file.schema.json"


def spec(**keys):
    return to_spec(read_run_file({"run": "true", **keys}))


def refused(data, code="invalid_run_file"):
    with pytest.raises(CumuloError) as caught:
        to_spec(read_run_file(data))
    assert caught.value.code == code, caught.value.message
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_command_is_enough():
    made = spec(run="python train.py --epochs 3\necho done")
    assert made.command == "python train.py --epochs 3\necho done"
    assert made.name == "python-train-py-epochs-3"
    assert made.kind is RunKind.TASK
    assert made.ask.gpu is None
    assert made.retry is None


def test_everything_can_be_said():
    made = spec(
        name="train",
        num_nodes=2,
        resources={"accelerators": "A100:8", "cpus": "16+", "memory": "64+", "use_spot": True, "region": "local"},
        envs={"EPOCHS": 3, "RATE": 0.5, "VERBOSE": True, "COUNTRY": "NO"},
        setup="pip install .",
        requirements=["numpy", "# a comment", "torch==2.5  # pinned", ""],
        workdir={"manifest": DIGEST},
        file_mounts={"./data": {"manifest": DIGEST}},
        mounts=["/data", None],
        runtime="process",
        array="0-499:5%16",
        priority=-3,
        after="other",
        max_duration="1d12h",
        grace=0,
        retry={"on_events": ["error"], "max_attempts": 5, "backoff": "1m"},
        progress=r"step (\d+)/(\d+)",
        project="default",
    )
    assert made.ask.describe() == "2 nodes x A100:8, 16 CPUs, 64GB"
    assert made.purchase is PurchaseOption.SPOT
    assert made.env == {"EPOCHS": "3", "RATE": "0.5", "VERBOSE": "true", "COUNTRY": "NO"}
    assert made.requirements == ("numpy", "torch==2.5")
    assert made.workdir == DIGEST
    assert made.file_mounts == (FileMount(target="data", manifest=DIGEST),)
    assert made.mounts == ("/data", "~")
    assert made.array == Array(first=0, last=499, step=5, parallel=16)
    assert made.after == ("other",)
    assert made.max_duration_s == 36 * 3600
    assert made.grace_s == 0
    assert made.retry == Retry(on_events=frozenset({"error"}), max_attempts=5, backoff_s=60.0)


@pytest.mark.parametrize(
    ("alias", "value", "attribute"),
    [
        ("commands", ["echo a", "echo b"], lambda made: made.command == "echo a\necho b"),
        ("nodes", 2, lambda made: made.ask.nodes == 2),
        ("env", {"A": 1}, lambda made: made.env == {"A": "1"}),
        ("gpu", "A100:2", lambda made: made.ask.gpu.canonical == "A100:2"),
    ],
)
def test_aliases_are_other_spellings(alias, value, attribute):
    data = {alias: value} if alias == "commands" else {"run": "true", alias: value}
    assert attribute(to_spec(read_run_file(data)))


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("A100:8", "A100:8"),
        ({"A100": 8}, "A100:8"),
        ({"A100": None}, "A100:1"),
        ({"A100": 2, "H100": 2}, "A100,H100:2"),
        (["A100:8", "H100:8"], "A100,H100:8"),
        ("8:A100,H100:40GB..", "A100,H100:40GB..:8"),
        (8, "8"),
        ("24GB..", "24GB..:1"),
    ],
)
def test_gpus_as_people_write_them(written, canonical):
    assert spec(resources={"accelerators": written}).ask.gpu.canonical == canonical


def test_a_bare_number_of_memory_is_gigabytes():
    assert spec(resources={"memory": 16}).ask.memory_bytes == 16 * GIB


def test_retry_is_switched_on_by_one_word():
    assert spec(retry=True).retry == Retry()
    assert spec(retry=False).retry is None


def test_a_key_without_a_value_is_left_out():
    assert spec(setup=None, envs=None, resources=None).setup == ""


def test_a_dev_run_needs_no_command():
    assert to_spec(read_run_file({"kind": "dev"})).name == "dev"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({}, "run: is missing"),
        ({"run": ""}, "run: is missing"),
        ({"run": "x", "acelerators": 1}, "acelerators: is not known"),
        ({"run": "x", "worlddir": "."}, "worlddir: is not known; did you mean 'workdir'?"),
        ({"run": "x", "resources": {"acelerators": "A100"}}, "did you mean 'accelerators'?"),
        ({"run": "x", "resources": {"cpu": 4}}, "resources.cpu: is not known; did you mean 'cpus'?"),
        ({"run": "x", "retry": {"max_atempts": 2}}, "retry.max_atempts: is not known; did you mean 'max_attempts'?"),
        ({"run": "x", "nodes": 1, "num_nodes": 2}, "is the same as 'num_nodes'"),
        ({"run": "x", "gpu": "A100", "resources": {"accelerators": "A100"}}, "give one"),
        ({"run": "x", "name": "a\nb"}, "name: 'a?b' can't be a name"),
        ({"run": "x", "name": "\x1b[31mred"}, "can't be a name"),
        ({"run": "x", "num_nodes": 0}, "num_nodes: Input should be greater than or equal to 1"),
        ({"run": "x", "num_nodes": "many"}, "num_nodes: Input should be a valid integer"),
        ({"run": "x", "resources": {"cpus": "lots"}}, "resources.cpus: 'lots' is not a number of CPUs"),
        ({"run": "x", "resources": {"memory": "4x"}}, "resources.memory: '4x'"),
        ({"run": "x", "resources": {"region": "mars"}}, "there is no region 'mars'"),
        ({"run": "x", "max_duration": "1:30:00"}, "max_duration: '1:30:00' is not a duration"),
        ({"run": "x", "max_duration": 0}, "max_duration"),
        ({"run": "x", "priority": 1000}, "priority"),
        ({"run": "x", "array": "10"}, "write for example 0-499"),
        ({"run": "x", "array": "9-0"}, "the array is empty"),
        ({"run": "x", "array": "0-9%0"}, "must be at least 1"),
        ({"run": "x", "array": "0-99999999"}, "at most 1000000"),
        ({"kind": "dev", "array": "0-9"}, "a dev run is one server"),
        ({"run": "x", "kind": "service"}, "kind: Input should be 'task' or 'dev'"),
        ({"run": "x", "envs": {"1A": 2}}, "can't name an environment variable"),
        ({"run": "x", "envs": {"A": None}}, "A has no value"),
        ({"run": "x", "envs": {"A": [1]}}, "A must be text, a number or a boolean"),
        ({"run": "x\0y"}, "NUL"),
        ({"run": "x", "mounts": ["data"]}, "can't be mounted"),
        ({"run": "x", "mounts": ["/data/../etc"]}, "'..' is not allowed"),
        ({"run": "x", "file_mounts": {"../up": "a"}}, "can't be a target"),
        ({"run": "x", "file_mounts": {".": "a"}}, "can't be a target"),
        ({"run": "x", "workdir": {"manifest": "short"}}, "workdir: manifest must be a SHA-256"),
        ({"run": "x", "workdir": "."}, "workdir: is a path; the client that submits must upload it"),
        ({"run": "x", "requirements": "requirements.txt"}, "requirements: is the path of a file"),
        ({"run": "x", "requirements": ["a\nb"]}, "is not a requirement"),
        ({"run": "x", "progress": "("}, "progress: is not a regular expression"),
        ({"run": "x", "progress": "step"}, "needs a group"),
        ({"run": "x", "retry": {"on_events": ["rain"]}}, "retry.on_events.0"),
        ({"run": "x", "after": ["a"] * 101}, "at most 100 runs"),
        ({"run": 3}, "run: 3 is not a command"),
        ([], "a run file must be a mapping of keys, not a list"),
        (None, "a run file must be a mapping of keys, not nothing"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_with_its_key(data, told):
    assert told in refused(data)


@pytest.mark.parametrize(
    "data",
    [
        {"service": {"port": 80}},
        {"secrets": {"TOKEN": "x"}},
        {"volumes": {"/v": "v"}},
        {"image": "ubuntu"},
        {"resources": {"image_id": "docker:ubuntu"}},
        {"resources": {"disk_size": 100}},
        {"file_mounts": {"data": "s3://bucket/data"}},
        {"workdir": "git@github.com:a/b"},
    ],
)
def test_what_has_not_landed_is_refused_by_name(data):
    message = refused({"run": "x", **data}, "not_supported_yet")
    assert message.startswith(next(iter(data)))


def resources(gpu=None, **more):
    return {"run": "x", "resources": {"accelerators": gpu, **more} if gpu else more}


@pytest.mark.parametrize(
    ("data", "gpu", "isolation"),
    [
        ({"run": "x", "gpu": 0.25}, GpuAsk(milli=250), Isolation.ANY),
        ({"run": "x", "gpu": {"H100": 0.5}}, GpuAsk(names=("H100",), milli=500), Isolation.ANY),
        (
            resources("H100:mig-1g.10gb:2", isolation="hard"),
            GpuAsk(names=("H100",), mig_profile="1g.10gb", count_min=2, count_max=2),
            Isolation.HARD,
        ),
        (resources("T4", gpu_memory="5GB"), GpuAsk(names=("T4",), slice_memory=5 * GIB), Isolation.ANY),
        (
            resources(gpu_memory=8, sharing="timeslice"),
            GpuAsk(slice_memory=8 * GIB, sharing=SharingMode.TIMESLICE),
            Isolation.ANY,
        ),
        (resources("H200:mig-1g.17gb"), GpuAsk(names=("H200",), mig_profile="1g.17gb"), Isolation.ANY),
    ],
)
def test_a_part_of_a_gpu_can_be_asked_for(data, gpu, isolation):
    ask = to_spec(read_run_file(data)).ask
    assert (ask.gpu, ask.isolation) == (gpu, isolation)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            resources("H100:0.25", isolation="hard"),
            "resources.isolation: hard needs a GPU or a MIG slice of one's own: write H100:mig-1g.20gb, "
            "or ask for a whole GPU",
        ),
        (resources("A100", gpu_memory="30GB", isolation="hard"), "write A100:mig-3g.40gb, or ask for a whole GPU"),
        (resources("T4:0.5", isolation="hard"), "of one's own: ask for a whole GPU"),
        (resources(0.5, isolation="hard"), "ask for a whole GPU, or for a MIG slice such as H100:mig-1g.20gb"),
        (
            resources("H100:0.25", gpu_memory="20GB"),
            "resources.gpu_memory: says how much of a GPU is asked for, and so does the fraction; give one",
        ),
        (resources("H100:2", gpu_memory="20GB"), "resources.gpu_memory: asks for a part of one GPU: give no count"),
        (resources("H100:mig-1g.10gb", gpu_memory="9GB"), "a MIG slice has the memory of its profile, 1g.10gb"),
        (resources("H100", sharing="mps"), "resources.sharing: says how a fraction of a GPU is shared; ask for one"),
        (resources("H100:0.5", sharing="mig"), "resources.sharing"),
        (
            resources("H100-80GB:mig-9g.1gb"),
            "resources.accelerators: no MIG profile 9g.1gb on H100-80GB; there are H100-80GB: 1g.10gb, 1g.10gb+me, "
            "1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb",
        ),
        ({"run": "x", "gpu": "T4:mig-1g.10gb"}, "gpu: T4 has no MIG; ask for a fraction, such as T4:0.25"),
        (
            {"run": "x", "runtime": "process", "resources": {"isolation": "hard"}},
            "resources.isolation: hard needs the runtime sandbox: process hides devices without fencing them",
        ),
    ],
)
def test_a_part_of_a_gpu_that_contradicts_itself_is_refused(data, told):
    assert told in refused(data)


def test_a_wrong_ask_points_at_the_wrong_part():
    message = refused({"run": "x", "resources": {"accelerators": "A100:8:9"}}, "invalid_ask")
    assert message == "resources.accelerators: in 'A100:8:9', at '9': the count is given twice"


def test_several_mistakes_are_all_in_the_details():
    with pytest.raises(CumuloError) as caught:
        read_run_file({"run": "x", "priority": "high", "num_nodes": 0})
    assert caught.value.message.endswith("(and 1 more)")
    assert [error["path"] for error in caught.value.details["errors"]] == [["num_nodes"], ["priority"]]


def test_planning_lets_paths_through():
    made = to_spec(read_run_file({"run": "x", "workdir": ".", "requirements": "r.txt"}), planning=True)
    assert (made.workdir, made.requirements) == ("", ())


def test_a_secret_in_the_wrong_place_is_not_repeated():
    message = refused({"run": "x", "secrets": {"TOKEN": "hunter2"}}, "not_supported_yet")
    assert "hunter2" not in message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(sorted(json.loads(SCHEMA.read_text())["properties"])) | st.text(max_size=10)


@given(st.dictionaries(KEYS, JSON, max_size=6))
def test_whatever_is_sent_becomes_a_spec_or_a_sentence(data):
    status = 422
    try:
        to_spec(read_run_file(data))
    except CumuloError as error:
        status = error.kind.http_status
    assert status == 422


def test_the_published_schema_is_current():
    regenerate = "write it again: python -m cumulo.wire.run_file > docs/run-file.schema.json"
    assert json.loads(SCHEMA.read_text()) == schema(), regenerate


def test_the_schema_knows_the_aliases():
    properties = schema()["properties"]
    assert {"commands", "nodes", "env", "gpu"} <= set(properties)
    assert properties["nodes"]["description"] == "the same as num_nodes"
