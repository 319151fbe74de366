"""Library steps as cuDNN's operation graphs: convolutions with what follows them, and attention."""

from __future__ import annotations

from typing import Any

from ort_core.plugin.ir import DataType
from ort_ep_cuda.lowering.library_steps import Activation, AnyLibraryStep, Convolution, Epilogue, ScaledAttention
from ort_ep_cuda.lowering.views import Shape, TensorView

_KINDS = {DataType.FLOAT: "FLOAT", DataType.FLOAT16: "HALF", DataType.BFLOAT16: "BFLOAT16"}
_ACTIVATIONS = {
    "relu": "relu", "clip": "relu", "gelu": "gelu", "gelu_tanh": "gelu_approx_tanh", "sigmoid": "sigmoid",
    "tanh": "tanh",
}  # fmt: skip
Tensors = tuple[Any, ...]  # Any: cuDNN's tensors; one for each operand of a step, in order


def refuse_form(step: AnyLibraryStep) -> str | None:
    """Return why a step has no graph, whatever the library can run."""
    if isinstance(step, ScaledAttention):
        return None if step.q.dtype is not DataType.FLOAT else "cuDNN's attention is used for 16-bit floats only"
    if not isinstance(step, Convolution):
        return f"{type(step).__name__} is not run by cuDNN"
    activation = step.epilogue.activation
    if activation is not None and activation.kind == "clip" and activation.low != 0.0:
        return "cuDNN clips from zero only"
    return None if step.epilogue.beta == 1.0 else "cuDNN adds tensors as they are"


def new_graph(cudnn: Any, step: AnyLibraryStep, handle: Any, device: Any = None) -> Any:  # Any: cuDNN has no types
    """Return an empty graph that computes in float32.

    Args:
        cudnn: the library.
        step: for its element type.
        handle: of the device; ``None`` with ``device``.
        device: a description of a device that is not here.
    """
    given = {"handle": handle} if device is None else {"device_property": device}
    float32 = cudnn.data_type.FLOAT
    return cudnn.pygraph(
        io_data_type=kind_of(cudnn, step.out.dtype), intermediate_data_type=float32, compute_data_type=float32, **given
    )


def kind_of(cudnn: Any, dtype: DataType) -> Any:  # Any: as above
    """Return cuDNN's name of an element type."""
    return getattr(cudnn.data_type, _KINDS[dtype])


def describe(cudnn: Any, graph: Any, step: AnyLibraryStep) -> Tensors:  # Any: as above
    """Add a step's operations to a graph; return its tensors in the order of the step's operands."""
    if isinstance(step, ScaledAttention):
        return _attention(cudnn, graph, step)
    assert isinstance(step, Convolution)
    return _convolution(cudnn, graph, step)


def _convolution(cudnn: Any, graph: Any, step: Convolution) -> Tensors:  # Any: as above
    image, filters = _tensor(cudnn, graph, "x", step.x), _tensor(cudnn, graph, "weights", step.weights)
    factors = {"loss": image, "filter": filters} if step.is_transposed else {"image": image, "weight": filters}
    window = step.window
    result = (graph.conv_dgrad if step.is_transposed else graph.conv_fprop)(
        **factors, pre_padding=_lifted(window.pads_before, 0), post_padding=_lifted(window.pads_after, 0),
        stride=_lifted(window.strides, 1), dilation=_lifted(window.dilations, 1),
    )  # fmt: skip
    if step.is_transposed:  # a gradient's size does not follow from what it is made of
        result.set_dim(list(planar(step.out)[0]))
    result, read = _finished(cudnn, graph, result, step)
    return (image, filters, *read, _stored(cudnn, result, step.out))


def _finished(cudnn: Any, graph: Any, result: Any, step: Convolution) -> tuple[Any, Tensors]:  # Any: as above
    """Add the epilogue."""
    epilogue: Epilogue = step.epilogue
    read: list[Any] = []
    if epilogue.bias is not None:
        channels = epilogue.bias.shape[0]
        ones = [1] * (len(planar(step.out)[0]) - 2)
        kind = kind_of(cudnn, epilogue.bias.dtype)
        strides = [channels, 1, *[channels] * len(ones)]
        read.append(graph.tensor(name="bias", dim=[1, channels, *ones], stride=strides, data_type=kind))
        result = graph.bias(input=result, bias=read[-1])
    if epilogue.addend is not None:
        read.append(_tensor(cudnn, graph, "addend", epilogue.addend))
        result = graph.add(a=result, b=read[-1])
    return (result if epilogue.activation is None else _activated(graph, result, epilogue.activation)), tuple(read)


def _activated(graph: Any, result: Any, activation: Activation) -> Any:  # Any: as above
    function = getattr(graph, _ACTIVATIONS[activation.kind])
    bounds = {"lower_clip": activation.low, "upper_clip": activation.high} if activation.kind == "clip" else {}
    return function(input=result, **bounds)


def _attention(cudnn: Any, graph: Any, step: ScaledAttention) -> Tensors:  # Any: as above
    named = zip(("q", "k", "v", "bias"), step.inputs, strict=False)
    tensors = {name: _tensor(cudnn, graph, name, view) for name, view in named}
    result, _ = graph.sdpa(
        **tensors, attn_scale=step.scale, is_inference=True, use_causal_mask=step.is_causal, name="attention"
    )
    return (*tensors.values(), _stored(cudnn, result, step.out))


def _tensor(cudnn: Any, graph: Any, name: str, view: TensorView) -> Any:  # Any: as above
    shape, strides = planar(view)
    return graph.tensor(name=name, dim=list(shape), stride=list(strides), data_type=kind_of(cudnn, view.dtype))


def _stored(cudnn: Any, result: Any, view: TensorView) -> Any:  # Any: as above
    shape, strides = planar(view)
    result.set_output(True).set_data_type(kind_of(cudnn, view.dtype)).set_dim(list(shape)).set_stride(list(strides))
    return result


def planar(view: TensorView) -> tuple[Shape, Shape]:
    """Return sizes and strides. cuDNN wants two axes of space: one of a single place is put before the only one."""
    if len(view.shape) != 3:
        return view.shape, view.strides
    row = view.shape[2] * view.strides[2]
    return (*view.shape[:2], 1, view.shape[2]), (*view.strides[:2], row, view.strides[2])


def _lifted(numbers: Shape, neutral: int) -> list[int]:
    return [neutral, *numbers] if len(numbers) == 1 else list(numbers)
