"""Responses of gRPC: tensors as raw bytes, or in shared memory."""

from __future__ import annotations

from typing import Any

from ort_serve.protocol.datatypes import array_to_bytes, datatype_of
from ort_serve.protocol.requests import InferResponse
from ort_serve.protocol.shared_memory import SharedMemoryRegions
from ort_serve.rpc.messages import MESSAGE_CLASSES

_Response = MESSAGE_CLASSES.get("ModelInferResponse")


def encode_infer(response: InferResponse, regions: SharedMemoryRegions) -> Any:
    """Return the ``ModelInferResponse`` of a result.

    Raises:
        InvalidRequest: an output does not fit its region, or has an element type that the protocol lacks.
    """
    message = _Response(model_name=response.model, model_version=response.version, id=response.identifier)
    for wanted, array in response.outputs:
        tensor = message.outputs.add(name=wanted.name, datatype=datatype_of(array).name)
        tensor.shape.extend(array.shape)
        raw = array_to_bytes(array)
        if wanted.region is None:
            message.raw_output_contents.append(raw)
            continue
        regions.write(wanted.region, raw)
        message.raw_output_contents.append(b"")  # clients count one part for each output
        tensor.parameters["shared_memory_region"].string_param = wanted.region.region
        tensor.parameters["shared_memory_offset"].int64_param = wanted.region.offset
        tensor.parameters["shared_memory_byte_size"].int64_param = len(raw)
    return message
