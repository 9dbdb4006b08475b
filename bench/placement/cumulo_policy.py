"""Cumulo's own choice as the openb benchmarks drive it: the array core by itself, learning the mix as it comes."""

import numpy as np

from bench.placement.openb_trace import MIB, MODELS, Nodes, Trace
from cumulo.placement.fleet.appraisal import Appraisal, capacity_of
from cumulo.placement.fleet.chooser import Chooser, compiled_kernels
from cumulo.placement.fleet.losses import Asked
from cumulo.placement.fleet.mix import AskShape
from cumulo.placement.fleet.rows import EMPTY, MPS, Kind, Row, Rows


class CumuloPolicy:
    """Places classes of one trace on nodes in a fixed order. `compiled` None: where numba is installed."""

    def __init__(self, trace: Trace, nodes: Nodes, *, compiled: bool | None = None) -> None:
        kinds = [Kind(model, 0, ()) for model in MODELS]
        self.rows = Rows(kinds, [_row(nodes, index) for index in range(len(nodes))])
        self.capacity, self.most = capacity_of(self.rows), int(nodes.gpus.max())
        self.appraisal = Appraisal()
        kernels = compiled_kernels() if compiled in (None, True) else None
        if compiled and kernels is None:
            raise RuntimeError("numba is not installed: pip install cumulo[scale]")
        worth = self.appraisal.worth(self.capacity, self.most)
        self.chooser = Chooser(self.rows, worth, tolerance=self.appraisal.tolerance, kernels=kernels)
        self.asked, self.shapes, self.needs = [], [], []
        for pod in trace.classes:
            milli = np.array(
                [pod.milli if pod.models >> kind & 1 else 0 for kind in range(len(MODELS))], dtype=np.int16
            )
            fraction = 0 < pod.milli < 1000
            asked = Asked(pod.gpus, milli, pod.cpus, pod.memory * MIB, MPS if fraction else EMPTY)
            self.chooser.learn(asked)
            self.asked.append(asked)
            self.shapes.append(AskShape(pod.gpus, tuple(int(each) for each in milli), pod.cpus))
            self.needs.append((pod.cpus, pod.memory * MIB, pod.gpus, pod.milli, fraction))

    def arrive(self, number: int) -> tuple[int, list[int]] | None:
        """Sees an ask of a class and places it: (row, devices), None where it does not fit."""
        cpus, memory, gpus, milli, fraction = self.needs[number]
        if self.appraisal.see(self.shapes[number], memory):
            self.chooser.value_by(self.appraisal.review(self.capacity, self.most), tolerance=self.appraisal.tolerance)
        pick = self.chooser.pick(number)
        if pick is None:
            return None
        self.appraisal.note(placed=1)
        device = pick.device if fraction else -1
        taken = self.rows.take(pick.row, cpus=cpus, memory=memory, gpus=gpus, milli=milli, device=device)
        return pick.row, taken

    def leave(self, number: int, row: int, devices: list[int]) -> None:
        """Gives back what a placed ask took."""
        cpus, memory, _, milli, _ = self.needs[number]
        self.appraisal.note(ended=1)
        self.rows.give(row, cpus=cpus, memory=memory, milli=milli, devices=devices)


def _row(nodes: Nodes, index: int) -> Row:
    count, cpus, memory = int(nodes.gpus[index]), int(nodes.cpus[index]), int(nodes.memory[index]) * MIB
    return Row(
        kind=int(nodes.model[index]),
        node_cpus=cpus,
        node_memory=memory,
        node_devices=count,
        devices=((1000, EMPTY),) * count,
        cpus=cpus,
        memory=memory,
    )
