"""What is watched while a script runs, and what is said of it in the end."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from .memory import Memory
from .stand_in_gpu import stand_for_gpu
from .watching import CannotMeasureError, devices, operations


class Probe:
    """Watches a script: what it allocates on the GPU, what it multiplies, and when an optimizer has stepped.

    The step measured lies between two steps of one optimizer, so that the optimizer's state is there; the script's
    first step where there is no second.
    """

    def __init__(self, script: Path, done: Callable[[dict[str, Any]], None]) -> None:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.torch: Any = torch
        self.script = script
        self.done = done
        self.fake: Any = FakeTensorMode(allow_non_fake_inputs=True)
        self.memory = Memory()
        self.operations: Counter[tuple[str, str, int, int]] = Counter()
        self.before: Counter[tuple[str, str, int, int]] = Counter()
        self.first: dict[str, Any] = {}
        self.steps: Counter[int] = Counter()
        self.models: list[Any] = []
        self.inputs: list[str] = []
        self.depth = 0
        self.read: Counter[str] = Counter()
        self.notes: dict[str, None] = {}

    # ---- what the script is given in place of a GPU

    def watching(self) -> Any:
        """A context in which the GPU is one that does not exist, and everything on it is counted."""
        stand_for_gpu(self)
        stack = ExitStack()
        stack.enter_context(devices(self))
        stack.enter_context(operations(self))
        return stack

    def on_gpu(self, tensor: Any) -> Any:
        """The fake tensor that stands for a real one moved to the GPU."""
        if self.is_fake(tensor):
            return tensor
        with self.torch.no_grad():
            made = self.fake.from_tensor(tensor.detach())
        made.requires_grad_(tensor.requires_grad)
        self.memory.see([made], "activations")
        return made

    def is_fake(self, value: Any) -> bool:
        from torch._subclasses.fake_tensor import FakeTensor

        return isinstance(value, FakeTensor)

    def where(self) -> str:
        """`train.py:41`: the line of the person's own code that is running."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            if self._own(frame.f_code.co_filename):
                return f"{Path(frame.f_code.co_filename).relative_to(self.script.parent)}:{frame.f_lineno}"
            frame = frame.f_back
        return self.script.name

    def stand_in(self, what: str) -> None:
        self.read[f"{self.where()} {what}"] += 1

    # ---- what happens in the script

    def enter(self, module: Any, given: Any) -> None:
        """A module is called; the outermost one is a model."""
        self.depth += 1
        if self.depth > 1:
            return
        if module not in self.models:
            self.models.append(module)
            self.memory.label((tensor for tensor in (*module.parameters(), *module.buffers())), "weights")
        if not sum(self.steps.values()):
            self.memory.forget_peak()
        tensors = [value for value in given if isinstance(value, self.torch.Tensor)]
        self.inputs = [f"{'x'.join(map(str, each.shape))} {str(each.dtype).partition('.')[2]}" for each in tensors]

    def leave(self, *_: Any) -> None:
        self.depth = max(0, self.depth - 1)

    def adopt(self, parameters: Iterable[Any]) -> None:
        """An optimizer has taken these."""
        for parameter in parameters:
            self.memory.label((parameter,), "weights")
            if parameter.requires_grad and parameter.is_leaf:
                parameter.register_post_accumulate_grad_hook(
                    lambda own: self.memory.label((own.grad,) if own.grad is not None else (), "gradients")
                )

    def step_begins(self, *_: Any) -> None:
        self.memory.kind = "optimizer"

    def step_ended(self, optimizer: Any, *_: Any) -> None:
        self.memory.kind = "activations"
        states = (value for state in optimizer.state.values() for value in state.values())
        self.memory.label((value for value in states if self.is_fake(value)), "optimizer")
        self.steps[id(optimizer)] += 1
        if self.steps[id(optimizer)] == 2:
            self.done(self.found())
        if sum(self.steps.values()) == 1:
            self.first = self.found()
            self.before = Counter(self.operations)
            self.memory.forget_peak()

    # ---- what is said in the end

    def found(self) -> dict[str, Any]:
        parameters = {id(each): each for model in self.models for each in model.parameters()}.values()
        return {
            "torch": self.torch.__version__,
            "models": [type(model).__name__ for model in self.models],
            "inputs": self.inputs,
            "parameters": sum(each.numel() for each in parameters),
            "trainable": sum(each.numel() for each in parameters if each.requires_grad),
            "peak_bytes": self.memory.peak,
            "parts": dict(self.memory.at_peak),
            "operations": [[*each, count] for each, count in (self.operations - self.before).items()],
            "stand_ins": dict(self.read),
            "notes": list(self.notes),
        }

    def at_end(self) -> dict[str, Any]:
        """The script ended by itself: what there is of one step, or why there is nothing."""
        if self.steps:
            return {**self.first, "notes": [*self.notes, "the script took one step: its first was measured"]}
        if not self.models:
            return {"error": "no_model", "message": "it ended without calling a torch.nn.Module"}
        return {"error": "no_step", "message": f"it called {type(self.models[0]).__name__}, but no optimizer stepped"}

    def why_not(self, error: BaseException) -> dict[str, Any]:
        """What a person is told of an exception that ended the script."""
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if self._own(frame.filename)]
        where = f"{Path(own[-1].filename).relative_to(self.script.parent)}:{own[-1].lineno}" if own else ""
        line = own[-1].line or "" if own else ""
        said = {"where": where, "line": line, "message": f"{type(error).__name__}: {error}".strip()[:2000]}
        if isinstance(error, CannotMeasureError):
            return {**said, "error": error.code, "message": str(error)}
        if isinstance(error, SystemExit):
            return self.at_end() if error.code in (None, 0) else {**said, "error": "exit", "message": str(error.code)}
        if isinstance(error, ModuleNotFoundError):
            return {**said, "error": "no_module", "message": str(error.name)}
        if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
            return {**said, "error": "data_dependent"}
        text = str(error).lower()
        if any(word in text for word in ("cuda", "nvidia", "cudnn", "nccl", "triton")):
            return {**said, "error": "needs_gpu"}
        return {**said, "error": "raised"}

    def _own(self, filename: str) -> bool:
        """Whether it is the person's code: beside the script, and in no environment that lies there too."""
        path = Path(filename)
        return path.is_relative_to(self.script.parent) and "site-packages" not in path.parts
