"""Library steps as cuDNN's operation graphs: convolutions and products with what follows them, attention, norms."""

from __future__ import annotations

from typing import Any

from ort_core.plugin.ir import DataType
from ort_ep_cuda.lowering.libraries.library_steps import (
    Activation,
    AnyLibraryStep,
    Convolution,
    Epilogue,
    MatrixProduct,
    Normalization,
    ScaledAttention,
)
from ort_ep_cuda.lowering.values.views import Shape, TensorView

_KINDS = {DataType.FLOAT: "FLOAT", DataType.FLOAT16: "HALF", DataType.BFLOAT16: "BFLOAT16"}
_ACTIVATIONS = {
    "relu": "relu", "clip": "relu", "gelu": "gelu", "gelu_tanh": "gelu_approx_tanh", "sigmoid": "sigmoid",
    "tanh": "tanh",
}  # fmt: skip
_NORMALIZATIONS = {"layer": "layernorm", "rms": "rmsnorm", "instance": "instancenorm"}
Tensors = tuple[Any, ...]  # Any: cuDNN's tensors; one for each operand of a step, in order


def refuse_form(step: AnyLibraryStep) -> str | None:
    """Return why a step has no graph, whatever the library can run."""
    if isinstance(step, ScaledAttention):
        return None
    if isinstance(step, Normalization):
        is_whole = step.kind == "rms" or step.bias is not None
        return None if is_whole else "cuDNN normalizes with a bias only"
    if isinstance(step, MatrixProduct) and step.alpha != 1.0:
        return "cuDNN multiplies matrices as they are"
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
    if isinstance(step, Normalization):
        return _normalization(cudnn, graph, step)
    if isinstance(step, MatrixProduct):
        return _product(cudnn, graph, step)
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


def _product(cudnn: Any, graph: Any, step: MatrixProduct) -> Tensors:  # Any: as above
    a, b = (_matrix(cudnn, graph, name, view) for name, view in (("a", step.a), ("b", step.b)))
    result, read = graph.matmul(A=a, B=b), []
    epilogue, columns = step.epilogue, step.out.shape[2]
    if epilogue.bias is not None:
        kind = kind_of(cudnn, epilogue.bias.dtype)
        read.append(graph.tensor(name="bias", dim=[1, 1, columns], stride=[columns, columns, 1], data_type=kind))
        result = graph.add(a=result, b=read[-1])
    if epilogue.addend is not None:
        read.append(_matrix(cudnn, graph, "addend", epilogue.addend))
        result = graph.add(a=result, b=read[-1])
    if epilogue.activation is not None:
        result = _activated(graph, result, epilogue.activation)
    out = step.out
    result.set_output(True).set_data_type(kind_of(cudnn, out.dtype)).set_dim([*out.shape]).set_stride([*out.strides])
    return (a, b, *read, result)


def _matrix(cudnn: Any, graph: Any, name: str, view: TensorView) -> Any:  # Any: as above
    """Return matrices as a tensor; one that a batch shares is a batch of one."""
    batch = 1 if view.strides[0] == 0 else view.shape[0]
    step = view.strides[0] or view.shape[1] * view.shape[2]
    dims, strides = [batch, *view.shape[1:]], [step, *view.strides[1:]]
    return graph.tensor(name=name, dim=dims, stride=strides, data_type=kind_of(cudnn, view.dtype))


def _normalization(cudnn: Any, graph: Any, step: Normalization) -> Tensors:  # Any: as above
    """Add a normalization: rows are images of one place whose columns are channels."""
    is_instance = step.kind == "instance"
    x, out = (view if is_instance else _as_channels(view) for view in (step.x, step.out))
    channels = x.shape[1]
    ones = [1] * (len(planar(x)[0]) - 2)
    image = _tensor(cudnn, graph, "x", x)
    affine = [
        graph.tensor(
            name=name, dim=[1, channels, *ones], stride=[channels, 1, *ones], data_type=kind_of(cudnn, view.dtype)
        )
        for name, view in (("scale", step.scale), ("bias", step.bias))
        if view is not None
    ]
    named = dict(zip(("scale", "bias"), affine, strict=False))
    result, *_ = getattr(graph, _NORMALIZATIONS[step.kind])(
        input=image, **named, epsilon=graph.tensor_scalar(step.epsilon, cudnn.scalar_type.RUNTIME_PARAM),
        norm_forward_phase=cudnn.norm_forward_phase.INFERENCE, name="normalization",
    )  # fmt: skip
    return (image, *affine, _stored(cudnn, result, out))


def _as_channels(view: TensorView) -> TensorView:
    """Return rows as images of one place."""
    return view.regrouped((*view.shape, 1, 1))


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
