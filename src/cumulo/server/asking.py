"""From a question as it was written to the advisor's: names become models and GPUs, defaults are filled in."""

from collections.abc import Iterable

from cumulo.advisor.advise import Market
from cumulo.advisor.questions import Serve, Train, Wanted
from cumulo.advisor.supply import OwnGpus, known_clouds, own_supplies, rented_supplies
from cumulo.catalog.kinds import all_kinds, resolve, unknown_gpu
from cumulo.catalog.models import ModelShape, check_shape, named_model, shape_from_config
from cumulo.control.answers import Offer
from cumulo.domain.ask import AskError, GpuAsk, parse_gpu_ask
from cumulo.domain.errors import CumuloError
from cumulo.domain.names import printable
from cumulo.domain.quantities import NANO
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import SharingMode
from cumulo.wire.api.advice import LanguageModel, Limits, ModelNumbers, ServeQuestion, TrainQuestion

_BATCH_TOKENS = 1 << 20
"""Tokens in a step of full training where none are named; fine-tuning takes 64 sequences."""
_FINE_TUNING_BATCH = 64


def shape_of(given: LanguageModel) -> ModelShape:
    """The model that a question names, configures or describes. Raises CumuloError (invalid_request)."""
    if given.model is not None:
        return named_model(given.model)
    if given.config is not None:
        return shape_from_config(given.config)
    assert given.shape is not None  # noqa: S101 (its model has checked that one of the three is given)
    return _shape(given.shape)


def _shape(given: ModelNumbers) -> ModelShape:
    if given.head_dim is None and given.hidden % given.heads:
        raise CumuloError(
            "invalid_request", f"shape: {given.hidden} wide and {given.heads} heads do not divide", hint="give head_dim"
        )
    shape = ModelShape(
        name="your model",
        layers=given.layers,
        hidden=given.hidden,
        heads=given.heads,
        kv_heads=given.kv_heads or given.heads,
        head_dim=given.head_dim or given.hidden // given.heads,
        ffn=given.ffn,
        vocab=given.vocab,
        gated=given.gated,
        tied=given.tied,
        experts=given.experts,
        active_experts=given.active_experts,
        max_context=given.context,
    )
    check_shape(shape)
    return shape


def train(given: TrainQuestion) -> Train:
    sequences = _FINE_TUNING_BATCH if given.method != "full" else max(_BATCH_TOKENS // given.seq, 1)
    if given.global_batch is None and given.tokens is not None:
        sequences = max(1, min(sequences, int(given.tokens // given.seq)))
    return Train(
        shape=shape_of(given),
        method=given.method,
        tokens=given.tokens,
        seq=given.seq,
        precision=given.precision,
        optimizer=given.optimizer,
        global_batch=given.global_batch or max(sequences, given.micro_batch or 1),
        micro_batch=given.micro_batch,
        recompute=given.recompute,
        rank=given.rank,
    )


def serve(given: ServeQuestion) -> Serve:
    return Serve(
        shape=shape_of(given),
        context=given.context,
        prompt=given.prompt or max(given.context * 3 // 4, 1),
        users=given.users,
        ttft_s=given.ttft_s,
        tpot_s=given.tpot_s,
        precisions=tuple(given.precisions),
    )


def wanted(given: Limits, *, most: int | None = None) -> Wanted:
    """The limits; `most` GPUs where none are named. Raises CumuloError (invalid_ask, unknown_gpu, invalid_request)."""
    known = known_clouds()
    for cloud in given.clouds:
        if cloud not in known:
            raise CumuloError(
                "invalid_request",
                f"no price list of {printable(cloud, 60)!r} is here",
                hint=f"known: {', '.join(known)}",
            )
    return Wanted(
        deadline_s=given.deadline_s,
        budget_nano=None if given.budget_usd is None else round(given.budget_usd * NANO),
        kinds=kinds_of(given.gpu) if given.gpu else frozenset(),
        max_gpus=given.max_gpus or most,
        clouds=frozenset(given.clouds),
        regions=frozenset(given.regions),
        purchases=frozenset(PurchaseOption(each) for each in given.purchases),
    )


def kinds_of(text: str) -> frozenset[str]:
    """Names of the kinds that an ask admits. Raises CumuloError (invalid_ask, unknown_gpu)."""
    try:
        ask = parse_gpu_ask(text)
    except AskError as error:
        raise CumuloError("invalid_ask", f"gpu: {error}") from None
    return admitted(ask)


def admitted(ask: GpuAsk) -> frozenset[str]:
    """The kinds that an ask's names and memory admit. Raises CumuloError (unknown_gpu)."""
    names: set[str] = set()
    for name in ask.names:
        found = resolve(name)
        if not found:
            raise unknown_gpu(name)
        names |= found
    kinds = [kind for kind in all_kinds() if not ask.names or kind.name in names]
    low, high = ask.memory_min or 0, ask.memory_max or 1 << 62
    fitting = frozenset(kind.name for kind in kinds if low <= kind.memory_bytes <= high)
    if not fitting:
        raise CumuloError("invalid_ask", "gpu: no GPU that is known has so much memory and no more")
    return fitting


def market(offers: Iterable[Offer], limits: Limits, wanted: Wanted) -> Market:
    """This cloud's GPUs, and those that clouds rent out."""
    own = [] if limits.own == "none" else own_supplies(_own(offer) for offer in offers)
    rented = [] if limits.own == "only" else rented_supplies(clouds=wanted.clouds, regions=wanted.regions)
    return Market(own=own, rented=rented)


def _own(offer: Offer) -> OwnGpus:
    return OwnGpus(
        region=offer.region,
        gpu=offer.gpu,
        memory_bytes=offer.memory_bytes,
        mode=SharingMode(offer.mode),
        profile=offer.profile,
        milli=offer.milli,
        per_node=offer.max_per_node,
        total=offer.total,
        free=offer.free,
        price_nano_h=offer.price_nano_h,
        rental_nano_h=offer.rental_nano_h,
        emulated=offer.emulated,
    )
