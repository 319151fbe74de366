"""Exports whose inputs and outputs get exactly the shapes that a conversion promises.

The exporter names sizes as it likes (``Concatpresent_0_dim_3``). A conversion says the shape of each input and output,
and the file gets that. Only modules below ``ort_transformers.models`` import torch, and this is the one that runs it.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from ort_transformers.dynamo_onnx_helper import DynamoOnnxHelper
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.torch_onnx_export_helper import torch_onnx_export

Module = Any  # torch's, as all tensors here: the types of an installation that need not be there
Shape = Sequence[int | str]
OPSET = 18


@dataclass(frozen=True)
class Signature:
    """Names and shapes of a model's inputs and outputs, in order; a size with a name is open."""

    inputs: Mapping[str, Shape]
    outputs: Mapping[str, Shape]

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """Return the open sizes as torch's exporter wants them."""
        shapes = {**self.inputs, **self.outputs}
        return {
            name: {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
            for name, shape in shapes.items()
        }


def export_torch(
    model: Module,
    arguments: Sequence[Any],
    path: str | Path,
    signature: Signature,
    *,
    use_external_data_format: bool = False,
    verbose: bool = False,
) -> None:
    """Write a module as an ONNX model.

    Attentions are traced in their eager form: others choose their branch by the sizes of the example.

    Args:
        model: the module, which is called with ``arguments``.
        arguments: an example; no size of it may be 1 where the signature leaves it open.
        path: the file to write; its folder is made.
        signature: what the file's inputs and outputs are called, and their shapes.
        use_external_data_format: write the weights beside the model, into one file.
        verbose: let torch describe what it does.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, eager_attention(model):
        written = Path(folder, "model.onnx")
        torch_onnx_export(
            model,
            tuple(arguments),
            str(written),
            verbose=verbose,
            input_names=list(signature.inputs),
            output_names=list(signature.outputs),
            opset_version=OPSET,
            dynamic_axes=signature.dynamic_axes(),
        )
        proto = onnx.load(written)
    write_shapes(proto, signature)
    OnnxModel.save(proto, str(path), save_as_external_data=use_external_data_format, all_tensors_to_one_file=True)


def export_dynamo(
    model: Module,
    arguments: Sequence[Any],
    path: str | Path,
    signature: Signature,
    *,
    clears_metadata: bool = False,
) -> None:
    """Write a module as an ONNX model by torch's other exporter, with the weights beside it.

    Args:
        model: the module, which is called with ``arguments``.
        arguments: an example; no size of it may be 1 where the signature leaves it open.
        path: the file to write; its folder is made.
        signature: what the file's inputs and outputs are called, and their shapes.
        clears_metadata: remove the exporter's notes at nodes.

    Raises:
        ModuleNotFoundError: onnxscript, which that exporter needs, is not installed.
    """
    torch = importlib.import_module("torch")
    named = {size for shape in signature.inputs.values() for size in shape if isinstance(size, str)}
    sizes = {name: torch.export.Dim(name) for name in named}
    open_axes = tuple(
        {axis: sizes[size] for axis, size in enumerate(shape) if isinstance(size, str)}
        for shape in signature.inputs.values()
    )
    with torch.no_grad(), eager_attention(model):
        program = torch.onnx.export(
            model, tuple(arguments), dynamo=True, dynamic_shapes=open_axes, opset_version=OPSET, verbose=False,
            input_names=list(signature.inputs), output_names=list(signature.outputs),
        )  # fmt: skip
    helper = DynamoOnnxHelper(program.model_proto)
    helper.convert_constants_to_initializers()
    if clears_metadata:
        helper.clear_metadata()
    write_shapes(helper.model.model, signature)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    OnnxModel.save(helper.model.model, str(path), save_as_external_data=True, all_tensors_to_one_file=True)


def write_shapes(proto: onnx.ModelProto, signature: Signature) -> None:
    """Give inputs and outputs the shapes of a signature, in place."""
    for values, shapes in ((proto.graph.input, signature.inputs), (proto.graph.output, signature.outputs)):
        for value in values:
            dims = value.type.tensor_type.shape.dim
            del dims[:]
            for size in shapes[value.name]:
                dims.add(**({"dim_param": size} if isinstance(size, str) else {"dim_value": size}))


@contextmanager
def eager_attention(model: Module) -> Iterator[None]:
    """Let the models of transformers inside a module compute attention by its formula for as long as this lasts."""
    configs: dict[int, Any] = {  # parts share configurations
        id(part.config): part.config for part in model.modules() if hasattr(part, "set_attn_implementation")
    }
    changed = [(config, config._attn_implementation) for config in configs.values()]
    for config, _ in changed:
        config._attn_implementation = "eager"
    try:
        yield
    finally:
        for config, before in changed:
            config._attn_implementation = before
