"""DirectML: structs, enumerators and method tables of DirectML.h. Descriptors of operators are in ``schema``."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_float, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import ClassVar, Final

from ort_ep_directml.abi.com import HRESULT, UNKNOWN, Interface, Method
from ort_ep_directml.abi.d3d12 import CpuDescriptorHandle, GpuDescriptorHandle

# ---------------------------------------------------------------- enumerators, by their names without the prefix DML
TENSOR_TYPE_BUFFER: Final = 1
TENSOR_FLAG_NONE: Final = 0
TENSOR_FLAG_OWNED_BY_DML: Final = 1
TENSOR_DIMENSION_COUNT_MAX: Final = 5  # before feature level 3.0
TENSOR_DIMENSION_COUNT_MAX1: Final = 8
BINDING_TYPE_NONE: Final = 0
BINDING_TYPE_BUFFER: Final = 1
BINDING_TYPE_BUFFER_ARRAY: Final = 2
GRAPH_EDGE_TYPE_INPUT: Final = 1
GRAPH_EDGE_TYPE_OUTPUT: Final = 2
GRAPH_EDGE_TYPE_INTERMEDIATE: Final = 3
GRAPH_NODE_TYPE_OPERATOR: Final = 1
GRAPH_NODE_TYPE_CONSTANT: Final = 2  # from feature level 6.2
EXECUTION_FLAG_NONE: Final = 0
EXECUTION_FLAG_ALLOW_HALF_PRECISION_COMPUTATION: Final = 1
EXECUTION_FLAG_DISABLE_META_COMMANDS: Final = 2
EXECUTION_FLAG_DESCRIPTORS_VOLATILE: Final = 4
CREATE_DEVICE_FLAG_NONE: Final = 0
CREATE_DEVICE_FLAG_DEBUG: Final = 1
FEATURE_TENSOR_DATA_TYPE_SUPPORT: Final = 0
FEATURE_FEATURE_LEVELS: Final = 1
FEATURE_LEVELS: Final = (
    0x1000, 0x2000, 0x2100, 0x3000, 0x3100, 0x4000, 0x4100, 0x5000, 0x5100, 0x5200, 0x6000, 0x6100, 0x6200, 0x6300,
    0x6400,
)  # fmt: skip
TENSOR_DATA_TYPES: Final = {
    "float32": 1, "float16": 2, "uint32": 3, "uint16": 4, "uint8": 5, "int32": 6, "int16": 7, "int8": 8,
    "float64": 9, "uint64": 10, "int64": 11, "uint4": 12, "int4": 13,
}  # fmt: skip
MINIMUM_BUFFER_TENSOR_ALIGNMENT: Final = 16  # of bytes where a tensor begins
TEMPORARY_BUFFER_ALIGNMENT: Final = 256
PERSISTENT_BUFFER_ALIGNMENT: Final = 256
TENSOR_SIZE_GRANULE: Final = 4  # a tensor's bytes are counted up to a multiple


# ---------------------------------------------------------------- structs
class BufferTensorDesc(ctypes.Structure):
    """DML_BUFFER_TENSOR_DESC: a tensor in a buffer."""

    c_name: ClassVar[str] = "DML_BUFFER_TENSOR_DESC"
    _fields_ = [
        ("DataType", c_uint32),
        ("Flags", c_uint32),
        ("DimensionCount", c_uint32),
        ("Sizes", c_void_p),
        ("Strides", c_void_p),
        ("TotalTensorSizeInBytes", c_uint64),
        ("GuaranteedBaseOffsetAlignment", c_uint32),
    ]


class TensorDesc(ctypes.Structure):
    """DML_TENSOR_DESC: any tensor."""

    c_name: ClassVar[str] = "DML_TENSOR_DESC"
    _fields_ = [("Type", c_uint32), ("Desc", c_void_p)]


class OperatorDesc(ctypes.Structure):
    """DML_OPERATOR_DESC: any operator."""

    c_name: ClassVar[str] = "DML_OPERATOR_DESC"
    _fields_ = [("Type", c_uint32), ("Desc", c_void_p)]


class Size2D(ctypes.Structure):
    """DML_SIZE_2D."""

    c_name: ClassVar[str] = "DML_SIZE_2D"
    _fields_ = [("Width", c_uint32), ("Height", c_uint32)]


class ScaleBias(ctypes.Structure):
    """DML_SCALE_BIAS."""

    c_name: ClassVar[str] = "DML_SCALE_BIAS"
    _fields_ = [("Scale", c_float), ("Bias", c_float)]


class ScalarUnion(ctypes.Union):
    """DML_SCALAR_UNION: one number of any type."""

    c_name: ClassVar[str] = "DML_SCALAR_UNION"
    _fields_ = [
        ("Bytes", ctypes.c_uint8 * 8),
        ("Int8", ctypes.c_int8),
        ("UInt8", ctypes.c_uint8),
        ("Int16", ctypes.c_int16),
        ("UInt16", ctypes.c_uint16),
        ("Int32", c_int32),
        ("UInt32", c_uint32),
        ("Int64", ctypes.c_int64),
        ("UInt64", c_uint64),
        ("Float32", c_float),
        ("Float64", ctypes.c_double),
    ]


class GraphNodeDesc(ctypes.Structure):
    """DML_GRAPH_NODE_DESC: any node."""

    c_name: ClassVar[str] = "DML_GRAPH_NODE_DESC"
    _fields_ = [("Type", c_uint32), ("Desc", c_void_p)]


class OperatorGraphNodeDesc(ctypes.Structure):
    """DML_OPERATOR_GRAPH_NODE_DESC."""

    c_name: ClassVar[str] = "DML_OPERATOR_GRAPH_NODE_DESC"
    _fields_ = [("Operator", c_void_p), ("Name", c_char_p)]


class ConstantDataGraphNodeDesc(ctypes.Structure):
    """DML_CONSTANT_DATA_GRAPH_NODE_DESC."""

    c_name: ClassVar[str] = "DML_CONSTANT_DATA_GRAPH_NODE_DESC"
    _fields_ = [("Data", c_void_p), ("DataSize", c_size_t), ("Name", c_char_p)]


class GraphEdgeDesc(ctypes.Structure):
    """DML_GRAPH_EDGE_DESC: any edge."""

    c_name: ClassVar[str] = "DML_GRAPH_EDGE_DESC"
    _fields_ = [("Type", c_uint32), ("Desc", c_void_p)]


class InputGraphEdgeDesc(ctypes.Structure):
    """DML_INPUT_GRAPH_EDGE_DESC."""

    c_name: ClassVar[str] = "DML_INPUT_GRAPH_EDGE_DESC"
    _fields_ = [
        ("GraphInputIndex", c_uint32),
        ("ToNodeIndex", c_uint32),
        ("ToNodeInputIndex", c_uint32),
        ("Name", c_char_p),
    ]


class OutputGraphEdgeDesc(ctypes.Structure):
    """DML_OUTPUT_GRAPH_EDGE_DESC."""

    c_name: ClassVar[str] = "DML_OUTPUT_GRAPH_EDGE_DESC"
    _fields_ = [
        ("FromNodeIndex", c_uint32),
        ("FromNodeOutputIndex", c_uint32),
        ("GraphOutputIndex", c_uint32),
        ("Name", c_char_p),
    ]


class IntermediateGraphEdgeDesc(ctypes.Structure):
    """DML_INTERMEDIATE_GRAPH_EDGE_DESC."""

    c_name: ClassVar[str] = "DML_INTERMEDIATE_GRAPH_EDGE_DESC"
    _fields_ = [
        ("FromNodeIndex", c_uint32),
        ("FromNodeOutputIndex", c_uint32),
        ("ToNodeIndex", c_uint32),
        ("ToNodeInputIndex", c_uint32),
        ("Name", c_char_p),
    ]


class GraphDesc(ctypes.Structure):
    """DML_GRAPH_DESC."""

    c_name: ClassVar[str] = "DML_GRAPH_DESC"
    _fields_ = [
        ("InputCount", c_uint32),
        ("OutputCount", c_uint32),
        ("NodeCount", c_uint32),
        ("Nodes", c_void_p),
        ("InputEdgeCount", c_uint32),
        ("InputEdges", c_void_p),
        ("OutputEdgeCount", c_uint32),
        ("OutputEdges", c_void_p),
        ("IntermediateEdgeCount", c_uint32),
        ("IntermediateEdges", c_void_p),
    ]


class BindingProperties(ctypes.Structure):
    """DML_BINDING_PROPERTIES: what a dispatchable needs beside its inputs and outputs."""

    c_name: ClassVar[str] = "DML_BINDING_PROPERTIES"
    _fields_ = [
        ("RequiredDescriptorCount", c_uint32),
        ("TemporaryResourceSize", c_uint64),
        ("PersistentResourceSize", c_uint64),
    ]


class BindingTableDesc(ctypes.Structure):
    """DML_BINDING_TABLE_DESC."""

    c_name: ClassVar[str] = "DML_BINDING_TABLE_DESC"
    _fields_ = [
        ("Dispatchable", c_void_p),
        ("CPUDescriptorHandle", CpuDescriptorHandle),
        ("GPUDescriptorHandle", GpuDescriptorHandle),
        ("SizeInDescriptors", c_uint32),
    ]


class BindingDesc(ctypes.Structure):
    """DML_BINDING_DESC: any binding."""

    c_name: ClassVar[str] = "DML_BINDING_DESC"
    _fields_ = [("Type", c_uint32), ("Desc", c_void_p)]


class BufferBinding(ctypes.Structure):
    """DML_BUFFER_BINDING: bytes of a resource."""

    c_name: ClassVar[str] = "DML_BUFFER_BINDING"
    _fields_ = [("Buffer", c_void_p), ("Offset", c_uint64), ("SizeInBytes", c_uint64)]


class BufferArrayBinding(ctypes.Structure):
    """DML_BUFFER_ARRAY_BINDING."""

    c_name: ClassVar[str] = "DML_BUFFER_ARRAY_BINDING"
    _fields_ = [("BindingCount", c_uint32), ("Bindings", c_void_p)]


class FeatureLevelsQuery(ctypes.Structure):
    """DML_FEATURE_QUERY_FEATURE_LEVELS."""

    c_name: ClassVar[str] = "DML_FEATURE_QUERY_FEATURE_LEVELS"
    _fields_ = [("RequestedFeatureLevelCount", c_uint32), ("RequestedFeatureLevels", c_void_p)]


# ---------------------------------------------------------------- method tables
_U = c_uint32
_P = c_void_p

OBJECT: Final = Interface(
    "IDMLObject",
    "c8263aac-9e0c-4a2d-9b8e-007521a3317c",
    UNKNOWN,
    Method("GetPrivateData", HRESULT, (_P, _P, _P)),
    Method("SetPrivateData", HRESULT, (_P, _U, _P)),
    Method("SetPrivateDataInterface", HRESULT, (_P, _P)),
    Method("SetName", HRESULT, (_P,)),
)
DEVICE: Final = Interface(
    "IDMLDevice",
    "6dbd6437-96fd-423f-a98c-ae5e7c2a573f",
    OBJECT,
    Method("CheckFeatureSupport", HRESULT, (_U, _U, _P, _U, _P)),
    Method("CreateOperator", HRESULT, (_P, _P, _P)),
    Method("CompileOperator", HRESULT, (_P, _U, _P, _P)),
    Method("CreateOperatorInitializer", HRESULT, (_U, _P, _P, _P)),
    Method("CreateCommandRecorder", HRESULT, (_P, _P)),
    Method("CreateBindingTable", HRESULT, (_P, _P, _P)),
    Method("Evict", HRESULT, (_U, _P)),
    Method("MakeResident", HRESULT, (_U, _P)),
    Method("GetDeviceRemovedReason", HRESULT, ()),
    Method("GetParentDevice", HRESULT, (_P, _P)),
)
DEVICE1: Final = Interface(
    "IDMLDevice1",
    "a0884f9a-d2be-4355-aa5d-5901281ad1d2",
    DEVICE,
    Method("CompileGraph", HRESULT, (_P, _U, _P, _P)),
)
DEVICE_CHILD: Final = Interface(
    "IDMLDeviceChild",
    "27e83142-8165-49e3-974e-2fd66e4cb69d",
    OBJECT,
    Method("GetDevice", HRESULT, (_P, _P)),
)
PAGEABLE: Final = Interface("IDMLPageable", "b1ab0825-4542-4a4b-8617-6dde6e8f6201", DEVICE_CHILD)
OPERATOR: Final = Interface("IDMLOperator", "26caae7a-3081-4633-9581-226fbe57695d", DEVICE_CHILD)
DISPATCHABLE: Final = Interface(
    "IDMLDispatchable",
    "dcb821a8-1039-441e-9f1c-b1759c2f3cec",
    PAGEABLE,
    Method("GetBindingProperties", BindingProperties, ()),
)
COMPILED_OPERATOR: Final = Interface("IDMLCompiledOperator", "6b15e56a-bf5c-4902-92d8-da3a650afea4", DISPATCHABLE)
OPERATOR_INITIALIZER: Final = Interface(
    "IDMLOperatorInitializer",
    "427c1113-435c-469c-8676-4d5dd072f813",
    DISPATCHABLE,
    Method("Reset", HRESULT, (_U, _P)),
)
BINDING_TABLE: Final = Interface(
    "IDMLBindingTable",
    "29c687dc-de74-4e3b-ab00-1168f2fc3cfc",
    DEVICE_CHILD,
    Method("BindInputs", None, (_U, _P)),
    Method("BindOutputs", None, (_U, _P)),
    Method("BindTemporaryResource", None, (_P,)),
    Method("BindPersistentResource", None, (_P,)),
    Method("Reset", HRESULT, (_P,)),
)
COMMAND_RECORDER: Final = Interface(
    "IDMLCommandRecorder",
    "e6857a76-2e3e-4fdd-bff4-5d2ba10fb453",
    DEVICE_CHILD,
    Method("RecordDispatch", None, (_P, _P, _P)),
)
