"""Numbers of the fields of ONNX's messages (onnx.proto), as far as they are read or written here."""

from __future__ import annotations

GRAPH = 7  # of a model
NODE, INITIALIZER, INPUT, OUTPUT, VALUE = 1, 5, 11, 12, 13  # of a graph
NODE_INPUT, NODE_OUTPUT, NODE_NAME, OP_TYPE, ATTRIBUTE = 1, 2, 3, 4, 5  # of a node
ATTRIBUTE_NAME, ATTRIBUTE_NUMBER, ATTRIBUTE_TYPE, ATTRIBUTE_BODIES = 1, 3, 20, (6, 11)  # of an attribute
ATTRIBUTE_IS_NUMBER = 2  # a type of attributes
TENSOR_DIM, TENSOR_ELEMENT_TYPE, TENSOR_INTEGERS, TENSOR_NAME = 1, 2, 7, 8  # of an initializer
VALUE_NAME, VALUE_TYPE = 1, 2  # of an input, an output or a value
TENSOR_TYPE = 1  # of a type
ELEMENT_TYPE, SHAPE = 1, 2  # of a tensor's type
DIM = 1  # of a shape
DIM_SIZE, DIM_NAME = 1, 2  # of a dimension
INT64 = 7  # a type of elements
