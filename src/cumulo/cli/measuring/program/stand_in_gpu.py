"""Makes PyTorch say that there is one GPU, and do for it what needs no GPU. Never undone: the process ends."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .probe import Probe


def stand_for_gpu(probe: Probe) -> None:
    """Makes PyTorch say that there is one GPU, and do for it what needs no GPU. Never undone: the process ends."""
    torch = probe.torch
    _say_there_is_a_gpu(torch)
    _make_parameters_fake(probe)
    _take_precision_as_on_gpu(probe)
    _take_kernels_as_on_gpu(probe)
    _follow(probe)


def _say_there_is_a_gpu(torch: Any) -> None:
    cuda = torch.cuda
    answers = {
        "is_available": True, "device_count": 1, "current_device": 0, "is_bf16_supported": True, "set_device": None,
        "synchronize": None, "empty_cache": None, "get_device_capability": (9, 0), "get_device_name": "fake GPU",
        "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0, "max_memory_reserved": 0,
        "reset_peak_memory_stats": None, "manual_seed": None, "manual_seed_all": None, "init": None,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(cuda, name, lambda *_args, _answer=answer, **_kwargs: _answer)


def _make_parameters_fake(probe: Probe) -> None:
    """A model is on the GPU from its first line on: building it costs no memory, and moving it changes nothing."""
    torch = probe.torch
    made = torch.nn.Parameter.__new__

    def new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        data = torch.empty(0) if data is None else data
        return made(cls, probe.on_gpu(data.detach()), requires_grad)

    torch.nn.Parameter.__new__ = new
    torch.nn.Module._apply = _convert(torch)
    torch.set_default_device = lambda *_: None


def _convert(torch: Any) -> Any:
    """What `.to()`, `.half()` and their like do to a module: PyTorch's own can't swap a fake parameter."""

    def apply(self: Any, function: Any, recurse: bool = True) -> Any:
        made: dict[int, Any] = {}
        for module in list(self.modules()) if recurse else [self]:
            for name, own in module._parameters.items():
                if own is None:
                    continue
                if id(own) not in made:  # tied weights stay tied
                    with torch.no_grad():
                        changed = function(own)
                    made[id(own)] = own if changed is own else torch.nn.Parameter(changed, own.requires_grad)
                module._parameters[name] = made[id(own)]
            for name, own in module._buffers.items():
                module._buffers[name] = None if own is None else function(own)
        return self

    return apply


def _take_precision_as_on_gpu(probe: Probe) -> None:
    """`autocast("cuda")` works on the fake tensors too, with CUDA's list of what stays in float32."""
    torch = probe.torch
    functional = torch.nn.functional
    begin = torch.autocast.__init__

    def init(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        begin(self, device_type, dtype, *args, **kwargs)

    def in_float32(function: Any) -> Any:
        def called(first: Any, *args: Any, **kwargs: Any) -> Any:
            half = probe.is_fake(first) and first.dtype in (torch.float16, torch.bfloat16)
            if half and torch.is_autocast_enabled("cpu"):
                first = first.float()
            return function(first, *args, **kwargs)

        return called

    def scale(self: Any, *_: Any, **__: Any) -> None:
        scaler(self, "cpu", enabled=False)

    torch.autocast.__init__ = init
    scaler = torch.amp.GradScaler.__init__
    torch.amp.GradScaler.__init__ = scale
    torch.cuda.amp.GradScaler.__init__ = scale
    for owner in (functional, torch, torch.Tensor):
        for name in ("softmax", "log_softmax", "layer_norm", "group_norm", "cross_entropy", "nll_loss", "norm"):
            if hasattr(owner, name):
                setattr(owner, name, in_float32(getattr(owner, name)))


def _take_kernels_as_on_gpu(probe: Probe) -> None:
    """Fused attention applies dropout inside; optimizers work on all tensors at once; compiling is left out."""
    torch = probe.torch
    functional = torch.nn.functional
    attend = functional.scaled_dot_product_attention

    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *args: Any, **kwargs: Any
    ) -> Any:
        return attend(query, key, value, attn_mask, 0.0, *args, **kwargs)

    def compiled(model: Any = None, *_: Any, **__: Any) -> Any:
        probe.notes["torch.compile was left out: what runs compiled mostly needs less memory"] = None
        return (lambda each: each) if model is None else model

    functional.scaled_dot_product_attention = attention
    torch.compile = compiled
    torch.nn.Module.compile = lambda *_, **__: compiled()
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.optim import optimizer

    devices = optimizer._get_foreach_kernels_supported_devices
    optimizer._foreach_supported_types.append(FakeTensor)
    optimizer._get_foreach_kernels_supported_devices = lambda: [*devices(), "cpu"]


def _follow(probe: Probe) -> None:
    """Hooks on modules, optimizers and loaders."""
    torch = probe.torch
    from torch.nn.modules import module
    from torch.optim import optimizer

    module.register_module_forward_pre_hook(probe.enter)
    module.register_module_forward_hook(probe.leave, always_call=True)
    optimizer.register_optimizer_step_pre_hook(probe.step_begins)
    optimizer.register_optimizer_step_post_hook(probe.step_ended)
    add = torch.optim.Optimizer.add_param_group

    def add_group(self: Any, group: Any) -> None:
        add(self, group)
        probe.adopt(self.param_groups[-1]["params"])

    torch.optim.Optimizer.add_param_group = add_group
    begin = torch.utils.data.DataLoader.__init__
    shape = inspect.signature(begin)
    alone = {
        "num_workers": 0, "pin_memory": False, "timeout": 0, "prefetch_factor": None, "persistent_workers": False,
        "multiprocessing_context": None,
    }  # fmt: skip

    def load(*args: Any, **kwargs: Any) -> None:
        """In this process, and not pinned: workers would be forks that hold what is fake."""
        given = shape.bind(*args, **kwargs)
        given.arguments.update({name: value for name, value in alone.items() if name in given.arguments})
        begin(*given.args, **given.kwargs)

    torch.utils.data.DataLoader.__init__ = load
