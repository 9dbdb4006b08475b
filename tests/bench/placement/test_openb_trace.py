"""Reading openb: what a pod and a node become, what is refused, and how arrivals are drawn."""

import gzip

import numpy as np
import pytest

from bench.placement.openb_trace import MODELS, BadTrace, Pod, folder_of, names, read_nodes, read_pods
from tests.bench.placement.traces import NODES, PODS, REAL, needs_the_real_one, write

ANY = (1 << len(MODELS)) - 1


def test_pods_are_classes_in_the_order_of_their_names(tmp_path):
    trace = read_pods(write(tmp_path), "default")
    half = Pod(4000, 8192, 1, 500, ANY)
    only = Pod(2000, 4096, 1, 1000, 1 << MODELS.index("T4") | 1 << MODELS.index("G2"))
    two, none = Pod(8000, 16384, 2, 1000, ANY), Pod(1000, 1024, 0, 0, ANY)
    assert [trace.classes[number] for number in trace.pods] == [only, two, half, none, half]
    assert [trace.counts[trace.classes.index(pod)] for pod in (half, none)] == [2, 1]
    assert [pod.group for pod in (none, half, only, two)] == [0, 1, 2, 3]


def test_milli_of_a_pod_without_gpu_is_nothing(tmp_path):
    trace = read_pods(write(tmp_path, pods=PODS.replace("d,1000,1024,0,0", "d,1000,1024,0,1000")), "default")
    assert Pod(1000, 1024, 0, 0, ANY) in trace.classes


def test_nodes_keep_their_order(tmp_path):
    nodes = read_nodes(write(tmp_path))
    assert nodes.gpus.tolist() == [2, 2, 4, 8]
    assert nodes.total_milli == 16_000
    assert nodes.ordered(np.array([3, 0, 1, 2])).gpus.tolist() == [8, 2, 2, 4]


def test_packed_lists_are_read_the_same(tmp_path):
    plain = read_pods(write(tmp_path), "default")
    (tmp_path / "openb_pod_list_other.csv.gz").write_bytes(gzip.compress(PODS.encode()))
    packed = read_pods(tmp_path, "other")
    assert packed.classes == plain.classes
    assert packed.pods.tolist() == plain.pods.tolist()
    assert names(tmp_path) == ["default", "other"]


@pytest.mark.parametrize(
    ("pods", "nodes", "words"),
    [
        (PODS.replace("T4|G2", "T4|H999"), NODES, ["pod a", "unknown GPU model 'H999'", "V100M32"]),
        (PODS, NODES.replace("G2", "B300"), ["a node", "unknown GPU model 'B300'"]),
        (PODS.replace("b,8000,16384,2,1000", "b,8000,16384,2,500"), NODES, ["pod b", "2 GPUs of 500 milli"]),
        (PODS.replace("1,500,", "1,1500,"), NODES, ["1 GPUs of 1500 milli"]),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path, pods, nodes, words):
    folder = write(tmp_path, pods=pods, nodes=nodes)
    with pytest.raises(BadTrace) as error:
        (read_nodes(folder), read_pods(folder, "default"))
    for word in words:
        assert word in str(error.value)


def test_a_list_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadTrace, match=r"openb_pod_list_cpu999\.csv is not there"):
        read_pods(write(tmp_path), "cpu999")
    with pytest.raises(BadTrace, match="--traces must name the folder"):
        folder_of(tmp_path / "nowhere")


def test_the_folder_may_be_the_traces_own_or_the_one_above(tmp_path):
    (tmp_path / "openb").mkdir()
    write(tmp_path / "openb")
    assert folder_of(tmp_path) == folder_of(tmp_path / "openb") == tmp_path / "openb"


def test_arrivals_are_all_pods_shuffled_then_drawn_again(tmp_path):
    trace = read_pods(write(tmp_path), "default")
    found = trace.arrivals(np.random.default_rng(1), 16_000)
    assert sorted(found[: len(trace.pods)]) == sorted(trace.pods)
    asked = int(trace.milli[found].sum())
    # The next one drawn would have gone past 130 %.
    assert 20_800 - max(trace.milli) < asked <= 20_800
    assert found.tolist() == trace.arrivals(np.random.default_rng(1), 16_000).tolist()
    assert found.tolist() != trace.arrivals(np.random.default_rng(2), 16_000).tolist()


def test_pods_are_dropped_where_there_are_too_many(tmp_path):
    trace = read_pods(write(tmp_path), "default")
    found = trace.arrivals(np.random.default_rng(1), 2_000)
    assert trace.milli[found].sum() <= 2_600
    assert not np.setdiff1d(found, trace.pods).size


@needs_the_real_one
def test_the_real_trace_is_what_its_authors_say():
    nodes, trace = read_nodes(REAL), read_pods(REAL, "default")
    assert (len(nodes), int(nodes.gpus.sum()), int(nodes.cpus.sum())) == (1213, 6212, 107_018_000)
    by_group = np.bincount([trace.classes[number].group for number in trace.pods])
    assert by_group.tolist() == [1088, 3078, 3911, 75]
    arrivals = trace.arrivals(np.random.default_rng(42), nodes.total_milli)
    assert trace.milli[arrivals].sum() / nodes.total_milli == pytest.approx(1.3, abs=0.002)
