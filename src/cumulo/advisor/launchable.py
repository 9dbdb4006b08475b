"""The run file that launches a plan: what it asks for, and the command or the settings of a program that does the work.

It is a mapping, as YAML gives it; who writes it down is the client's business. A training script is the person's own:
its settings come as environment variables, named so that they can't be overlooked.
"""

from typing import Any

from cumulo.advisor.plans import Plan
from cumulo.domain.names import name_from
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import SharingMode

_TORCHRUN = (
    "torchrun --nnodes $CUMULO_NUM_NODES --node_rank $CUMULO_RANK --nproc_per_node $CUMULO_GPUS_PER_NODE "
    "--master_addr $MASTER_ADDR train.py"
)


def run_of(plan: Plan, *, work: str, name: str, command: str = "") -> dict[str, Any]:
    """A run file for `plan`. `work` is `train` or `serve`, `command` what it runs; a launcher of train.py if empty."""
    run: dict[str, Any] = {"name": name_from(name)}
    if plan.nodes > 1:
        run["num_nodes"] = plan.nodes
    run["resources"] = {"accelerators": ask(plan)}
    if plan.supply.mode in (SharingMode.MPS, SharingMode.TIMESLICE):
        run["resources"]["sharing"] = str(plan.supply.mode)
    if plan.purchase is PurchaseOption.SPOT:
        run["resources"]["use_spot"] = True
        run["retry"] = True
    if settings := plan.estimate.settings:
        run["envs"] = {key.upper(): value for key, value in settings.items()}
    run["run"] = command or (_TORCHRUN if work == "train" and plan.gpus > 1 else "python train.py")
    return run


def ask(plan: Plan) -> str:
    """What one node is asked for: `H100-80GB:8`, `A100-80GB:mig-3g.40gb`, `L4:0.5`."""
    supply = plan.supply
    if supply.profile:
        return f"{supply.kind.name}:mig-{supply.profile}"
    if supply.share < 1:
        return f"{supply.kind.name}:{supply.share:g}"
    return f"{supply.kind.name}:{-(-plan.gpus // plan.nodes)}"
