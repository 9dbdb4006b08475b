"""Two modes of PyTorch through which everything passes: calls that name a device, and operations below autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .probe import Probe

STAND_IN = 1


class CannotMeasureError(Exception):
    """What stops the measurement, as a code and the words that say it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def devices(probe: Probe) -> Any:
    """Sees every call that names a device: what is for the GPU becomes fake."""
    from torch.overrides import TorchFunctionMode

    torch = probe.torch
    movers = (torch.Tensor.to, torch.Tensor.cuda)
    readers = {torch.Tensor.tolist: "tolist()", torch.Tensor.numpy: "numpy()", torch.Tensor.__array__: "__array__"}

    def gpu(value: Any) -> bool:
        if isinstance(value, str):
            return value.partition(":")[0] == "cuda"
        return isinstance(value, torch.device) and value.type == "cuda"

    class Devices(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func in movers:
                return moved(func, args, kwargs)
            if func in readers and probe.is_fake(args[0]):
                probe.stand_in(readers[func])
                host = torch.full(args[0].shape, STAND_IN, dtype=args[0].dtype, device="cpu")
                return func(host, *args[1:], **kwargs)
            if gpu(kwargs.get("device")):
                with probe.fake:
                    made = func(*args, **{**kwargs, "device": "cpu"})
                return made if probe.is_fake(made) or not isinstance(made, torch.Tensor) else probe.on_gpu(made)
            return func(*args, **kwargs)

    def moved(func: Any, args: Any, kwargs: Any) -> Any:
        tensor, rest = args[0], list(args[1:])
        to_gpu = func is torch.Tensor.cuda or gpu(kwargs.get("device")) or any(map(gpu, rest))
        if func is torch.Tensor.cuda:
            return probe.on_gpu(tensor)
        if any(probe.is_fake(each) for each in rest) or to_gpu:
            tensor = probe.on_gpu(tensor)
        rest = ["cpu" if gpu(each) else each for each in rest]
        return func(tensor, *rest, **{name: "cpu" if gpu(value) else value for name, value in kwargs.items()})

    return Devices()


def operations(probe: Probe) -> Any:
    """Sees every operation below autograd: counts what it allocates and multiplies."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import flop_registry

    torch = probe.torch
    aten = torch.ops.aten
    # The processor's kernel of the same attention has no formula of its own. Where its arguments say `is_causal`:
    forward, backward = aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_flash_attention_backward
    attention = {
        aten._scaled_dot_product_flash_attention_for_cpu: (forward, 4),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: (backward, 7),
    }

    class Operations(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func is aten._local_scalar_dense.default and probe.is_fake(args[0]):
                return read(args[0])
            out = func(*args, **kwargs)
            made = [each for each in tree_leaves(out) if probe.is_fake(each)]
            if made:
                probe.memory.see(made)
                if not func.is_view:
                    count(func, args, kwargs, made, out)
            return out

    def read(tensor: Any) -> Any:
        if tensor.dtype == torch.bool:
            raise CannotMeasureError("data_dependent", "it decides by a value that is on the GPU")
        probe.stand_in("item()")
        return float(STAND_IN) if tensor.is_floating_point() else STAND_IN

    def count(func: Any, args: Any, kwargs: Any, made: list[Any], out: Any) -> None:
        """What it multiplies, and what it reads and writes: each tensor once."""
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        tensors = {id(each): each.numel() * each.element_size() for each in (*given, *made)}
        packet = func._overloadpacket
        like, causal = attention.get(packet, (packet, None))
        formula = flop_registry.get(like)
        flops = formula(*args, **kwargs, out_val=out) if formula else recurrent(packet.__name__, args)
        if causal is not None and len(args) > causal and args[causal]:
            flops //= 2  # a fused kernel skips what the mask hides
        if causal is not None:
            kind = "attention"
        else:
            kind = "convolution" if "convolution" in packet.__name__ else "product" if flops else "other"
        dtype = (given or made)[0].dtype
        probe.operations[kind, str(dtype).partition(".")[2], int(flops), sum(tensors.values())] += 1

    def recurrent(name: str, args: Any) -> int:
        """Of the processor's kernel for LSTMs and GRUs: each place of the input meets both matrices of weights."""
        passes = {"mkldnn_rnn_layer": 1, "mkldnn_rnn_layer_backward": 2}.get(name, 0)
        if not passes:
            return 0
        given, inner, before = args[:3]
        return int(passes * 2 * given.numel() // given.shape[-1] * (inner.numel() + before.numel()))

    return Operations()
