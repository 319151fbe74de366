"""create_config_from_models(): which operators models need, as onnxruntime's reduced builds read it.

ai.onnx;13;Add,MatMul
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

from onnx import NodeProto

from ort_core.model_types import find_operator, infer_proto
from ort_core.whole_files import replace_text
from ort_tools.logger import get_logger
from ort_tools.onnx_model_utils import iterate_graph_per_node_func

log = get_logger("ort_format_model.utils")
_ONNX = ("", "ai.onnx")


def create_config_from_models(
    model_files: Iterable[pathlib.Path], output_file: pathlib.Path, enable_type_reduction: bool
) -> None:
    """Write the operators that models need.

    Args:
        model_files: files in ORT format, or of ONNX.
        output_file: the file to write; folders are made.
        enable_type_reduction: asks for the element types of each operator, too. They are not written: a build keeps
            all types then, which a warning says.

    Raises:
        ValueError: one is not a file.
        OrtError: one cannot be read.
    """
    files = sorted(model_files)
    if enable_type_reduction:
        log.warning("the types that operators are used with are not written: a build by this file keeps all types")
    needed: dict[tuple[str, int], set[str]] = {}
    for path in files:
        if not path.is_file():
            raise ValueError(f"Path is not a file: '{path}'")
        _add_operators(path, needed)
    lines = ["# Generated from model/s:", *(f"# - {path}" for path in files)]
    lines += [f"{domain};{opset};{','.join(sorted(names))}" for (domain, opset), names in sorted(needed.items())]
    output_file.parent.mkdir(parents=True, exist_ok=True)
    replace_text(output_file, "\n".join(lines) + "\n")
    log.info("Created config in %s", output_file)


def _add_operators(path: pathlib.Path, needed: dict[tuple[str, int], set[str]]) -> None:
    model = infer_proto(path).model
    imports = {"" if each.domain in _ONNX else each.domain: int(each.version) for each in model.opset_import}

    def add(node: NodeProto) -> None:
        domain = "" if node.domain in _ONNX else node.domain
        opset = imports.get(domain, 1)
        schema = find_operator(domain, node.op_type, opset)
        version = opset if schema is None else schema.since_version
        needed.setdefault((domain or "ai.onnx", version), set()).add(node.op_type)

    iterate_graph_per_node_func(model.graph, add)
