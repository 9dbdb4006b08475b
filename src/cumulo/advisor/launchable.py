"""The run file that launches a plan: what it asks for, and the command or the settings of a program that does the work.

It is a mapping, as YAML gives it; who writes it down is the client's business. A training script is the person's own:
its settings come as environment variables, named so that they can't be overlooked.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any, Final

from cumulo.advisor.plans import Plan
from cumulo.domain.names import name_from
from cumulo.domain.quantities import GIB
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import SharingMode

TRAIN: Final = "python train.py"
_TORCHRUN: Final = (
    "torchrun --nnodes $CUMULO_NUM_NODES --node_rank $CUMULO_RANK --nproc_per_node $CUMULO_GPUS_PER_NODE "
    "--master_addr $MASTER_ADDR train.py"
)


def run_of(plan: Plan, *, name: str, command: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A run file for `plan`: all its GPUs together, or an array of pieces that work apart.

    `more` are keys that the work brings along. What trains on several GPUs is started by torchrun.
    """
    given = dict(more or {})
    piece = plan.estimate.piece or plan.gpus
    pieces = plan.gpus // piece
    each = replace(plan, gpus=piece, nodes=max(1, -(-piece // plan.supply.per_node)))
    if "array" in given and pieces > 1:
        given["array"] = f"{given['array']}%{pieces}"
    elif pieces > 1:
        given["array"] = f"1-{pieces}"
    run: dict[str, Any] = {"name": name_from(name)}
    if each.nodes > 1:
        run["num_nodes"] = each.nodes
    run["resources"] = {"accelerators": ask(each)}
    if host := plan.estimate.host_bytes * -(-each.gpus // each.nodes):
        run["resources"]["memory"] = f"{ceil(host / GIB)}GB"
    if plan.supply.mode in (SharingMode.MPS, SharingMode.TIMESLICE):
        run["resources"]["sharing"] = str(plan.supply.mode)
    if plan.purchase is PurchaseOption.SPOT:
        run["resources"]["use_spot"] = True
        run["retry"] = True
    settings = {key.upper(): value for key, value in plan.estimate.settings.items()}
    if envs := settings | given.pop("envs", {}):
        run["envs"] = envs
    run |= given
    run["run"] = _TORCHRUN if command == TRAIN and each.gpus > 1 else command
    return run


def ask(plan: Plan) -> str:
    """What one node is asked for: `H100-80GB:8`, `A100-80GB:mig-3g.40gb`, `L4:0.5`."""
    supply = plan.supply
    if supply.profile:
        return f"{supply.kind.name}:mig-{supply.profile}"
    if supply.share < 1:
        return f"{supply.kind.name}:{supply.share:g}"
    return f"{supply.kind.name}:{-(-plan.gpus // plan.nodes)}"
