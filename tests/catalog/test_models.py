"""The table of models agrees with what their makers say, and names are found as people write them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.catalog.models import (
    all_models,
    find_model,
    named_model,
    published_parameters,
    shape_from_config,
    suggest_models,
)
from cumulo.domain.errors import CumuloError


@pytest.mark.parametrize("shape", all_models(), ids=lambda shape: shape.name)
def test_a_shape_has_the_parameters_that_its_maker_published(shape):
    assert shape.parameters == pytest.approx(published_parameters()[shape.name], rel=0.02)


@pytest.mark.parametrize("shape", all_models(), ids=lambda shape: shape.name)
def test_every_name_means_its_own_model(shape):
    for spelled in (shape.name, shape.name.upper().replace("-", " ").replace(".", "-")):
        assert find_model(spelled) is shape


@pytest.mark.parametrize(
    ("model", "billions"),
    [("mixtral-8x7b", 12.9), ("deepseek-v3", 37), ("qwen3-235b-a22b", 22), ("dbrx", 36), ("llama-4-scout", 17)],
)
def test_active_parameters_are_those_published(model, billions):
    assert named_model(model).active_parameters / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("meta-llama/Llama-2-7b-hf", "Llama-2-7B"),
        ("Llama 2 7 B", "Llama-2-7B"),
        ("llama3.1 8b", "Llama-3.1-8B"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
        ("mixtral", "Mixtral-8x7B"),
        ("GPT-OSS-120B", "gpt-oss-120b"),
        ("bert-base-uncased", "BERT-base"),
        ("phi-1.5 1.3 B", "Phi-1.5"),
        ("stablelm-base-alpha-3b", "StableLM-alpha-3B"),
        ("turing-530B", "Megatron-GPT-530B"),
        ("LLaMA-33B", "Llama-33B"),
    ],
)
def test_spellings(spelled, name):
    assert named_model(spelled).name == name


@pytest.mark.parametrize("name", ["lama-3.1-8b", "llama-3.1", "llama-3.1-9b"])
def test_a_name_that_is_not_known_tells_what_may_be_meant(name):
    assert any(near.startswith("Llama-3.1") for near in suggest_models(name))
    with pytest.raises(CumuloError, match=r"did you mean .*Llama") as refused:
        named_model(name)
    assert refused.value.kind.exit_code == 2


def test_what_looks_like_nothing_suggests_nothing():
    assert suggest_models("") == []
    assert suggest_models("///") == []
    assert suggest_models("zzzzqqqq") == []


def test_the_cache_of_windows_and_of_latent_attention():
    assert named_model("llama-3.1-8b").kv_values_per_token == 2 * 32 * 8 * 128
    assert named_model("deepseek-v3").kv_values_per_token == 61 * 576
    gemma = named_model("gemma-3-27b")
    assert gemma.kv_values(1 << 17) == 2 * 16 * 128 * (52 * 1024 + 10 * (1 << 17))
    assert gemma.kv_values(100) == 100 * gemma.kv_values_per_token


CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B": {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False,
        "max_position_embeddings": 131072,
    },
    "GPT-2": {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_ctx": 1024},
    "Mixtral-8x7B": {
        "model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
        "num_experts_per_tok": 2, "max_position_embeddings": 32768, "sliding_window": None,
    },
    "DeepSeek-V3": {
        "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
        "num_key_value_heads": 128, "intermediate_size": 18432, "vocab_size": 129280, "n_routed_experts": 256,
        "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3,
        "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "tie_word_embeddings": False,
    },
    "Falcon-7B": {
        "model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71,
        "multi_query": True, "vocab_size": 65024, "tie_word_embeddings": False,
    },
    "Gemma-3-4B": {
        "model_type": "gemma3", "text_config": {
            "model_type": "gemma3_text", "num_hidden_layers": 34, "hidden_size": 2560, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 10240, "vocab_size": 262208,
            "sliding_window": 1024, "sliding_window_pattern": 6,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_gives_the_shape_of_the_table(name):
    read, known = shape_from_config(CONFIGS[name]), named_model(name)
    assert read.parameters == known.parameters
    assert read.active_parameters == known.active_parameters
    assert read.kv_values(8192) == known.kv_values(8192)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_hidden_layers": None}, "lacks num_hidden_layers"),
        ({"hidden_size": -4096}, "hidden_size can't be -4096"),
        ({"hidden_size": "4096"}, "hidden_size must be a whole number"),
        ({"hidden_size": 4095, "head_dim": None}, "do not divide"),
        ({"num_key_value_heads": 7}, "can't share 7"),
        ({"num_local_experts": 4, "num_experts_per_tok": 8}, "8 of 4 experts"),
        ({"vocab_size": 10**12}, "vocab_size can't be"),
        ({"num_hidden_layers": 10**8}, "parameters"),
    ],
)
def test_a_config_that_can_not_be_is_refused_with_the_reason(change, told):
    with pytest.raises(CumuloError, match=told) as refused:
        shape_from_config(CONFIGS["Llama-3.1-8B"] | change)
    assert refused.value.code == "invalid_request"


_WRITTEN = st.sampled_from(["", "4096", "x"])
_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | _WRITTEN | st.lists(st.integers(), max_size=3)


@given(st.dictionaries(st.sampled_from(sorted(CONFIGS["DeepSeek-V3"])), _VALUES))
def test_whatever_a_config_says_it_is_read_or_refused(change):
    try:
        shape = shape_from_config(CONFIGS["DeepSeek-V3"] | change)
    except CumuloError:
        return
    assert 0 < shape.active_parameters <= shape.parameters
