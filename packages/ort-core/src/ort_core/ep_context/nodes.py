"""EPContext nodes: how a compiled partition stands in an ONNX model, with the attributes of onnxruntime's schema.

Inputs are those of the partition, then the large constants that its graph refers to; outputs are the partition's.
"""

from __future__ import annotations

import base64
import binascii
import platform
from collections.abc import Sequence

from ort_core import __version__
from ort_core.errors import InvalidGraph
from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, TensorType, ValueType
from ort_core.ir.values import Value

OP_TYPE, DOMAIN = "EPContext", "com.microsoft"
COMPATIBILITY_PREFIX = "ep_compatibility_info."
_CARRIED = frozenset(
    {"float", "float16", "double", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
     "bool"}
)  # fmt: skip  # what the schema lets through


@frozen
class ContextFacts:
    """The attributes of a node but its content."""

    provider: str
    key: str
    partition: str
    digest: str
    model_file: str = ""


def compatibility_text(key: str) -> str:
    """Return what a model's metadata say of a provider with that ``cache_key``."""
    return f"ort-core {__version__}|{key}"


def is_context(node: Node) -> bool:
    """Return whether a node is a compiled partition."""
    return node.op_type == OP_TYPE and node.domain == DOMAIN


def can_carry(value_type: ValueType | None) -> bool:
    """Return whether a value of that type may go into or out of an EPContext node."""
    return isinstance(value_type, TensorType) and fits_context_node(value_type.dtype)


def fits_context_node(dtype: DataType) -> bool:
    """Return whether tensors of an element type may go into or out of an EPContext node."""
    return dtype.text in _CARRIED


def context_node(
    facts: ContextFacts, content: bytes | str, inputs: Sequence[Value], outputs: Sequence[Value], name: str
) -> Node:
    """Return a node. ``content`` is the context itself, or the name of the file beside the model that holds it."""
    is_embedded = not isinstance(content, str)
    text = content if isinstance(content, str) else base64.b64encode(content).decode("ascii")
    attributes: dict[str, object] = {
        "main_context": 1, "embed_mode": int(is_embedded), "ep_cache_context": text, "ep_sdk_version": facts.key,
        "hardware_architecture": platform.machine(), "partition_name": facts.partition, "source": facts.provider,
        "notes": f"sha256:{facts.digest}", "onnx_model_filename": facts.model_file or None,
    }  # fmt: skip
    return Node(OP_TYPE, inputs, outputs, attributes, domain=DOMAIN, name=name)


def facts_of(node: Node) -> ContextFacts:
    """Return the facts that a node states."""
    digest = node.string_attribute("notes", "")
    return ContextFacts(
        node.string_attribute("source", ""),
        node.string_attribute("ep_sdk_version", ""),
        node.string_attribute("partition_name", ""),
        digest.removeprefix("sha256:") if digest.startswith("sha256:") else "",
        node.string_attribute("onnx_model_filename", ""),
    )


def embedded_content(node: Node) -> bytes | None:
    """Return the content inside a node, ``None`` where it lies in a file.

    Raises:
        InvalidGraph: it is not in the form in which this project writes it.
    """
    if not node.int_attribute("embed_mode", 1):
        return None
    text = node.string_attribute("ep_cache_context", "")
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise InvalidGraph(
            f"{node.describe()} holds a context that another program has written "
            f"(source {facts_of(node).provider!r}); compile the model anew with ort compile"
        ) from error


def element_type(value: Value | None) -> DataType | None:
    """Return the element type of a tensor value, ``None`` where it is not known."""
    return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None
