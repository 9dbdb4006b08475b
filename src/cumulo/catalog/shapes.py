"""The shape of a transformer: the few numbers from which its parameters, its memory and its work follow.

Biases, norms and learned positions are left out: together they are under 1 % of any model in the table, whose test
holds each total against the published one. A Hugging Face `config.json` becomes a shape here too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """One model. Widths count values, not bytes.

    `gated` feed-forwards have three matrices (SwiGLU and its kin), others two. `ffn` is the width of a dense layer, or
    of an expert where `expert_ffn` is 0. The first `dense_layers` of a mixture of experts have no experts; where
    the two kinds alternate it counts the dense ones. `shared_ffn` is the width of experts that every token passes.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    gated: bool
    tied: bool
    experts: int = 0
    active_experts: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    max_context: int | None = None
    kv_latent: int = 0
    """Values cached per token and layer by multi-head latent attention, `rope_dim` of them included; else 0."""
    query_latent: int = 0
    rope_dim: int = 0
    window: int | None = None
    """Tokens that a layer with sliding-window attention looks back."""
    window_layers: int = 0
    """How many of the layers have that window."""

    @property
    def moe_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def attention_parameters(self) -> int:
        """Of one layer's projections."""
        wide = self.heads * self.head_dim
        if not self.kv_latent:
            return 2 * self.hidden * wide + 2 * self.hidden * self.kv_heads * self.head_dim
        asked = self.heads * (self.head_dim + self.rope_dim)
        query = self.query_latent * (self.hidden + asked) if self.query_latent else self.hidden * asked
        latent = self.kv_latent - self.rope_dim
        return query + self.hidden * self.kv_latent + 2 * latent * wide + wide * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Of the input embedding and the output head; one matrix where they are tied."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    def feed_forward_parameters(self, *, experts: int) -> int:
        """Of one layer, counting `experts` of its experts (and its router); of a dense layer where it is 0."""
        matrices = 3 if self.gated else 2
        if not experts:
            return matrices * self.hidden * self.ffn
        widths = experts * (self.expert_ffn or self.ffn) + self.shared_ffn
        return matrices * self.hidden * widths + self.hidden * self.experts

    @property
    def parameters(self) -> int:
        return self._counted(self.experts)

    @property
    def active_parameters(self) -> int:
        """Those that one token passes, embeddings included; all of them in a dense model."""
        return self._counted(self.active_experts)

    def _counted(self, experts: int) -> int:
        dense = (self.layers - self.moe_layers) * self.feed_forward_parameters(experts=0)
        sparse = self.moe_layers * self.feed_forward_parameters(experts=experts) if self.moe_layers else 0
        return self.embedding_parameters + self.layers * self.attention_parameters + dense + sparse

    @property
    def kv_values_per_token(self) -> int:
        """Values kept in the cache for one token of context, over all layers, as if no layer had a window."""
        return self.layers * (self.kv_latent or 2 * self.kv_heads * self.head_dim)

    def kv_values(self, context: int) -> int:
        """Values in the cache of one sequence of `context` tokens: windowed layers keep only their window."""
        per_layer = self.kv_latent or 2 * self.kv_heads * self.head_dim
        windowed = self.window_layers if self.window else 0
        kept = min(context, self.window or context)
        return per_layer * (windowed * kept + (self.layers - windowed) * context)


_UNGATED: Final = frozenset(
    {"gpt2", "gptj", "gpt_neo", "gpt_neox", "gpt_bigcode", "opt", "bloom", "falcon", "RefinedWeb", "RefinedWebModel"}
    | {"mpt", "bert", "roberta", "distilbert", "phi", "starcoder2", "nemotron", "stablelm_alpha"}
)
_TIED: Final = frozenset(
    {"gpt2", "gpt_neo", "gpt_bigcode", "opt", "bloom", "mpt", "bert", "roberta", "distilbert", "starcoder2", "cohere"}
    | {"gemma", "gemma2", "gemma3", "gemma3_text"}
)
_SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("v_head_dim", "head_dim", "kv_channels"),
    "ffn": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "hidden_dim"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts"),
    "active_experts": ("num_experts_per_tok", "experts_per_token", "moe_topk"),
    "expert_ffn": ("moe_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "max_context": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"),
    "query_latent": ("q_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
    "window": ("sliding_window",),
}
_MOST: Final = 10**9


def shape_from_config(config: Mapping[str, Any]) -> ModelShape:
    """The shape that a Hugging Face `config.json` tells. Raises CumuloError (invalid_request)."""
    inner = config.get("text_config")
    config = {**config, **inner} if isinstance(inner, Mapping) else config
    kind = str(config.get("model_type", ""))
    read = {name: _number(config, name) for name in _SPELLINGS}
    if missing := [name for name in ("layers", "hidden", "heads", "vocab") if not read[name]]:
        told = ", ".join(" or ".join(_SPELLINGS[name][:2]) for name in missing)
        raise _refused(f"config.json lacks {told}", "give a transformer's config.json, or the numbers themselves")
    layers, hidden, heads = read["layers"] or 0, read["hidden"] or 0, read["heads"] or 0
    latent = _whole(config, "kv_lora_rank")
    if not read["head_dim"] and hidden % heads:
        raise _refused(f"config.json: {hidden} wide and {heads} heads do not divide", "give head_dim")
    shape = ModelShape(
        name=printable(str(config.get("_name_or_path") or kind or "model"), 80),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(config, read["kv_heads"], heads),
        head_dim=read["head_dim"] or hidden // heads,
        ffn=read["ffn"] or hidden * (_whole(config, "expansion_ratio") or 4),
        vocab=read["vocab"] or 0,
        gated=kind not in _UNGATED,
        tied=bool(config.get("tie_word_embeddings", kind in _TIED)),
        experts=read["experts"] or 0,
        active_experts=read["active_experts"] or 0,
        expert_ffn=read["expert_ffn"] or 0,
        shared_ffn=_shared(config, read["expert_ffn"] or 0),
        dense_layers=read["dense_layers"] or 0 if read["experts"] else 0,
        max_context=read["max_context"],
        kv_latent=latent + (read["rope_dim"] or 0) if latent else 0,
        query_latent=read["query_latent"] or 0,
        rope_dim=read["rope_dim"] or 0 if latent else 0,
        window=read["window"],
        window_layers=_window_layers(config, layers) if read["window"] else 0,
    )
    check_shape(shape)
    return shape


def check_shape(shape: ModelShape) -> None:
    """Raises CumuloError (invalid_request) where numbers are impossible or contradict one another."""
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab"):
        if not 0 < getattr(shape, name) <= _MOST:
            raise _refused(f"model {shape.name}: {name} can't be {getattr(shape, name)}", "give a positive number")
    if shape.kv_heads > shape.heads or shape.heads % shape.kv_heads:
        raise _refused(
            f"model {shape.name}: {shape.heads} heads can't share {shape.kv_heads} key-value heads",
            "kv_heads must divide heads",
        )
    if shape.experts and not 0 < shape.active_experts <= shape.experts:
        raise _refused(
            f"model {shape.name}: {shape.active_experts} of {shape.experts} experts can't be active",
            "give num_experts_per_tok between 1 and the number of experts",
        )
    if shape.dense_layers > shape.layers:
        raise _refused(
            f"model {shape.name}: {shape.dense_layers} dense layers are more than its {shape.layers}", "check both"
        )
    if not 10**5 <= shape.parameters <= 10**14:
        raise _refused(f"model {shape.name} would have {shape.parameters:.3g} parameters", "check its numbers")


def _number(config: Mapping[str, Any], name: str) -> int | None:
    return next((_whole(config, key) for key in _SPELLINGS[name] if config.get(key) is not None), None)


def _whole(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        raise _refused(f"config.json: {key} must be a whole number, not {printable(repr(value), 40)}", "")
    if not 0 <= value <= _MOST:
        raise _refused(f"config.json: {key} can't be {value:g}", "give a number that a model can have")
    return int(value)


def _kv_heads(config: Mapping[str, Any], told: int | None, heads: int) -> int:
    if (
        config.get("multi_query")
        and not config.get("new_decoder_architecture")
        and "multi_query_group_num" not in config
    ):
        return 1
    return told or heads


def _shared(config: Mapping[str, Any], expert_ffn: int) -> int:
    return _whole(config, "shared_expert_intermediate_size") or _whole(config, "n_shared_experts") * expert_ffn


def _window_layers(config: Mapping[str, Any], layers: int) -> int:
    if config.get("use_sliding_window") is False:
        return 0
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return sum(kind == "sliding_attention" for kind in kinds)
    if pattern := _whole(config, "sliding_window_pattern"):
        return layers - layers // pattern
    if config.get("model_type") == "gemma2":
        return (layers + 1) // 2
    return layers


def _refused(message: str, hint: str) -> CumuloError:
    return CumuloError("invalid_request", message, hint=hint)
