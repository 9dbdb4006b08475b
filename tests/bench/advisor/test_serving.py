"""Published rates of serving, read and scored."""

import pytest

from bench.advisor import served, serving
from bench.advisor.fit import BadData
from cumulo.catalog.coefficients import coefficients
from tests.bench.advisor.rows import write

OFFLINE = {
    "engine": "TensorRT-LLM 1.0", "model": "Llama-3.1-8B", "params": "8030000000.0", "active_params": "8030000000.0",
    "gpu": "H100-SXM5-80GB", "gpus": "1", "tp": "1", "pp": "1", "precision": "fp8", "isl": "1000", "osl": "1000",
    "concurrency": "max (offline)", "output_tokens_s": "15220", "source": "a test", "bits_per_weight": "", "phase": "",
    "oom": "",
}  # fmt: skip
SINGLE = {
    **OFFLINE, "engine": "llama.cpp (early 2024)", "model": "Llama-3-8B", "gpu": "RTX 4090", "precision": "Q4_K_M",
    "isl": "0", "osl": "1024", "concurrency": "1", "output_tokens_s": "127.74", "bits_per_weight": "4.89",
    "phase": "decode", "oom": "False",
}  # fmt: skip


def test_rows_of_both_kinds_are_scored_and_others_dropped(tmp_path):
    write(
        tmp_path,
        "llm_serving_throughput",
        OFFLINE,
        {**OFFLINE, "gpu": "TPU v5e"},
        {**OFFLINE, "precision": "fp2"},
        SINGLE,
        {**SINGLE, "output_tokens_s": "", "oom": "True"},
        {**SINGLE, "phase": "prefill"},
    )
    found = serving.targets(tmp_path)
    many, one = found["serving_offline"], found["decode_batch1"]
    assert (len(many.rows), many.dropped) == (1, 2)
    assert (len(one.rows), one.dropped) == (1, 1)
    assert abs(many.rows[0].error) < 0.2
    assert abs(one.rows[0].error) < 0.1


def test_a_row_of_a_concurrency_is_estimated_at_it(tmp_path):
    write(tmp_path, "llm_serving_throughput", OFFLINE, {**OFFLINE, "concurrency": "4"})
    most, few = serving.targets(tmp_path)["serving_offline"].rows
    assert few.estimate.expected < most.estimate.expected / 5


def test_several_replicas_count_for_one_each(tmp_path):
    write(tmp_path, "llm_serving_throughput", OFFLINE, {**OFFLINE, "gpus": "4", "output_tokens_s": "60880"})
    one, four = serving.targets(tmp_path)["serving_offline"].rows
    assert one == four


def test_a_folder_without_the_file_gives_no_targets(tmp_path):
    assert serving.targets(tmp_path) == {}


def test_nothing_to_fit_to_is_said(tmp_path):
    write(tmp_path, "llm_serving_throughput", OFFLINE)
    with pytest.raises(BadData, match="decode_batch1"):
        serving.fit(tmp_path)


def test_fitting_changes_what_is_expected(tmp_path):
    """Rates twice as high as they were make constants twice as fast, as far as the priors let them."""
    lengths = [("128", "128"), ("1000", "1000"), ("2048", "128"), ("128", "2048")]
    rows = [{**OFFLINE, "isl": isl, "osl": osl} for isl, osl in lengths]
    rates = [case.estimate.expected for case in serving.targets(write(tmp_path, "llm_serving_throughput", *rows))[
        "serving_offline"
    ].rows]  # fmt: skip
    doubled = [{**row, "output_tokens_s": str(2 * rate)} for row, rate in zip(rows, rates, strict=True)]
    write(tmp_path, "llm_serving_throughput", *doubled, SINGLE)
    fitted = coefficients().replaced("serving", serving.fit(tmp_path)).serving
    many, *_ = served.read(tmp_path)
    for case, rate in zip(many, rates, strict=True):
        assert 1.4 * rate < (serving.offline(fitted, case) or 0) < 2.2 * rate
