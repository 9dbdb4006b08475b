"""Published results of MD, MLPerf, hashing and proving, read and scored."""

import math

import pytest

from bench.advisor import laws
from bench.advisor.law import fitted, known, left_out
from bench.advisor.law_cases import Hashing
from bench.advisor.ranking import Pairs, taus
from tests.bench.advisor.rows import write

MD = {
    "app": "gromacs", "system": "3000k-atoms", "atoms": "3000000", "gpu": "GH200-96GB", "gpus_listed": "1",
    "ns_per_day": "14.175", "cpu_only": "False", "notes": "", "source": "a test",
}  # fmt: skip
TRAINING = {
    "round": "v4.0", "benchmark": "bert", "accelerator": "NVIDIA H100-SXM5-80GB", "accel_count": "8", "nodes": "1",
    "ttt_min": "5.4", "runs": "10", "failed": "0", "global_batch": "768", "seq_len": "", "submitter": "NVIDIA",
    "samples_to_target_mean": "", "framework": "PyTorch", "network": "", "source": "a test",
}  # fmt: skip
HASH = {
    "workload": "ethash", "gpu": "RTX 3090", "rate": "132090000", "unit": "H/s", "watts": "", "notes": "",
    "source": "a test",
}  # fmt: skip
PROOF = {
    "system": "RISC Zero zkVM", "op": "rv32im/poseidon2", "gpu": "L4", "cycles": "1048576", "seconds": "1.8812",
    "khz": "", "ram_mb": "", "notes": "", "source": "a test",
}  # fmt: skip


def test_rows_are_scored_and_what_is_no_gpus_is_dropped(tmp_path):
    write(tmp_path, "hpc_md_nsday", MD, {**MD, "cpu_only": "True"}, {**MD, "app": "lammps"}, {**MD, "gpu": "CPU"})
    write(tmp_path, "mlperf_training", TRAINING, {**TRAINING, "benchmark": "flux"})
    write(tmp_path, "hash_rates", HASH, {**HASH, "unit": "minutes on 1 GPU"}, {**HASH, "gpu": "RX 580 8GB"})
    write(tmp_path, "zk_proving", PROOF, {**PROOF, "notes": "an old prover: not comparable"})
    found = laws.targets(tmp_path)
    assert {name: (len(target.rows), target.dropped) for name, target in found.items()} == {
        "md": (1, 3),
        "mlperf_training": (1, 1),
        "hash": (1, 2),
        "zk": (1, 1),
    }
    for target in found.values():
        assert abs(target.rows[0].error) < 0.25


def test_a_longer_time_step_simulates_more(tmp_path):
    jac = {**MD, "app": "amber", "system": "JAC_production_NVE", "atoms": "23558"}
    write(tmp_path, "hpc_md_nsday", jac, {**jac, "system": "JAC_production_NVE_4fs"})
    two, four = laws.targets(tmp_path)["md"].rows
    assert four.estimate.expected / two.estimate.expected == pytest.approx(1.9, abs=0.1)


def test_a_law_is_fitted_to_what_it_is_given(tmp_path):
    write(tmp_path, "hash_rates", {**HASH, "rate": "100e6"}, {**HASH, "gpu": "RTX 3080", "rate": "80e6"})
    law = Hashing()
    cases = law.cases(tmp_path).kept
    constants = fitted(law, cases)
    for case in cases:
        assert math.isclose(known(law, constants, case) or 0, case.actual, rel_tol=0.1)
    found = left_out(law, cases, lambda case: case.gpu)
    assert sorted(round(case.actual) for case, _ in found) == [80_000_000, 100_000_000]


def test_of_a_group_left_out_nothing_is_known_that_only_it_tells(tmp_path):
    write(tmp_path, "hash_rates", HASH, {**HASH, "workload": "hashcat NTLM", "gpu": "RTX 4090", "rate": "288e9"})
    law = Hashing()
    assert left_out(law, law.cases(tmp_path).kept, lambda case: case.gpu) == []


def test_orders_of_gpus_are_compared_where_they_did_the_same(tmp_path):
    slower = {**TRAINING, "accelerator": "NVIDIA L40S", "ttt_min": "30"}
    other = {**TRAINING, "accelerator": "NVIDIA H200-SXM5-141GB", "accel_count": "16", "ttt_min": "1"}
    write(tmp_path, "mlperf_training", TRAINING, slower, other)
    assert taus(tmp_path) == {"mlperf_training v4.0": Pairs(1, 0)}
    write(tmp_path, "mlperf_training", TRAINING, {**slower, "ttt_min": "3"}, other)
    assert taus(tmp_path)["mlperf_training v4.0"].tau == -1
