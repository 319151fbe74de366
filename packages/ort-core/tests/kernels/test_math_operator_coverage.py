"""Every version of every mathematical operator has a kernel whose signature is the schema's."""

import importlib
import pkgutil

import numpy as np
import onnx
import pytest
from onnx import defs

import ort_core.kernels.reference as reference
from ort_core.ir.types import DataType
from ort_core.kernels.registry import KernelRegistry, attribute_names, signature

_NAMES = """
Abs Acos Acosh Adagrad Adam Add And ArgMax ArgMin Asin Asinh Atan Atanh Bernoulli BitCast BitShift BitwiseAnd
BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike Ceil Celu Clip Constant ConstantOfShape ConvInteger Cos
Cosh CumProd CumSum DequantizeLinear Det Div DynamicQuantizeLinear Einsum Elu Equal Erf Exp EyeLike Floor Gelu Gemm
Gradient Greater GreaterOrEqual HammingWindow HannWindow HardSigmoid HardSwish Hardmax IsInf IsNaN LeakyRelu Less
LessOrEqual Log LogSoftmax MatMul MatMulInteger Max Mean Min Mish Mod Momentum Mul Multinomial Neg
NegativeLogLikelihoodLoss NonZero Not Or PRelu Pow QLinearConv QLinearMatMul QuantizeLinear RandomNormal
RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Round Selu Shrink Sigmoid Sign Sin Sinh
Softmax SoftmaxCrossEntropyLoss Softplus Softsign Sqrt Sub Sum SwiGLU Swish Tan Tanh ThresholdedRelu TopK Unique Where
Xor
"""
OPERATORS = frozenset(_NAMES.split())
SCHEMAS = [
    schema
    for schema in defs.get_all_schemas_with_history()
    if schema.name in OPERATORS and schema.domain in ("", "ai.onnx.preview.training") and not schema.deprecated
]


@pytest.fixture(scope="module")
def registry():
    names = [module.name for module in pkgutil.walk_packages(reference.__path__, f"{reference.__name__}.")]
    return KernelRegistry.of(importlib.import_module(name) for name in names)


def test_the_table_names_only_operators_that_onnx_has():
    assert {schema.name for schema in SCHEMAS} == OPERATORS


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: f"{schema.name}-{schema.since_version}")
def test_a_kernel_takes_the_attributes_of_the_schema_with_its_defaults(registry, schema):
    spec = registry.find(schema.domain, schema.name, schema.since_version)
    assert spec, spec
    assert set(schema.attributes) <= attribute_names(spec.function)
    for name, attribute in schema.attributes.items():
        default = signature(spec.function).parameters[name].default
        if attribute.default_value.name:
            expected = onnx.helper.get_attribute_value(attribute.default_value)
            expected = expected.decode() if isinstance(expected, bytes) else expected
            assert default == expected, f"{schema.name}-{schema.since_version}: {name}={default}, schema: {expected}"
        elif not attribute.required and name not in ("max", "min"):  # Clip-1: without bounds as with the widest ones
            assert default in (None, ()), f"{schema.name}-{schema.since_version}: {name}={default}, schema: none"


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: f"{schema.name}-{schema.since_version}")
def test_a_kernel_takes_as_many_inputs_as_the_schema(registry, schema):
    spec = registry.find(schema.domain, schema.name, schema.since_version)
    inputs = [p for p in signature(spec.function).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in inputs)
    required = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in inputs)
    assert required <= schema.min_input
    assert variadic or len(inputs) >= schema.max_input


_SPECIAL = np.array([[0.0, -0.0, 1.0, -1.0, 6e4, -6e4, np.inf, -np.inf, np.nan]])
_OTHER_INPUTS = frozenset(["BitwiseNot", "ConstantOfShape", "Det", "DynamicQuantizeLinear", "EyeLike", "Not", "Unique"])


def _takes_one_float(schema):
    required = any(attribute.required for attribute in schema.attributes.values())
    window = schema.name.endswith("Window")
    return (
        schema.min_input == schema.max_input == 1 and not required and not window and schema.name not in _OTHER_INPUTS
    )


@pytest.mark.parametrize("dtype", [DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT, DataType.DOUBLE])
def test_special_values_give_no_warning_and_keep_the_shape(registry, dtype):
    x = _SPECIAL.astype(dtype.numpy)
    for schema in filter(_takes_one_float, SCHEMAS):
        function = registry.find(schema.domain, schema.name, schema.since_version).function
        if "ctx" not in signature(function).parameters:
            result = function(x)  # pytest turns a warning into an error
            assert isinstance(result, np.ndarray), schema.name
            assert result.ndim == x.ndim, schema.name


def test_results_without_dimensions_are_arrays(registry):
    x = np.array(1.0, np.float32)
    for schema in filter(_takes_one_float, SCHEMAS):
        function = registry.find(schema.domain, schema.name, schema.since_version).function
        # the others have an axis, which a scalar lacks, or count coordinates
        if not {"axis", "ctx"} & set(signature(function).parameters) and schema.name not in ("EyeLike", "NonZero"):
            result = function(x)
            assert isinstance(result, np.ndarray), schema.name
            assert result.shape == (), schema.name
