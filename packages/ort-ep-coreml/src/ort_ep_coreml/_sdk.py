"""The only module that imports coremltools: building, saving, reloading and opening packages; single values.

coremltools keeps the program that is being built in global stacks: everything here runs under one lock. Types of
coremltools are ``Any``: it ships none.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ort_core.plugin import Available, Unavailable
from ort_ep_coreml.compiled_models import are_same, opened
from ort_ep_coreml.mil import MilOperation, MilPort, MilProgram, Operand, Ref, Size
from ort_ep_coreml.open_sizes import OpenSizes

_LOCK = threading.RLock()
_UNITS = MappingProxyType({
    "ALL": "ALL", "CPUOnly": "CPU_ONLY", "CPUAndGPU": "CPU_AND_GPU", "CPUAndNeuralEngine": "CPU_AND_NE",
})  # fmt: skip
_NUMPY = MappingProxyType({"fp32": np.float32, "fp16": np.float16, "int32": np.int32})
_BEFORE_LISTS = "iOS17"
_NIBBLES = frozenset({"int4", "uint4"})
MAX_MESSAGE = 400  # characters
OMITTED_PASSES = ("common::fuse_elementwise_to_batchnorm",)
"""coremltools' passes that change what a program means; packages depend on them.

This one makes a batch normalization of a product and a sum by channels, and its epsilon is added to a variance of one:
4e-6 of every number is lost. Of half precision coremltools then refuses what it made.
"""


class SdkError(Exception):
    """coremltools refused or failed; the text is its own."""


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """How a package is built.

    Attributes:
        target: the oldest system, as coremltools names it (``iOS17``).
        precision: ``FLOAT32`` or ``FLOAT16``.
        sizes: the values of open sizes.
    """

    target: str
    precision: str
    sizes: OpenSizes


def find_toolkit() -> Available | Unavailable:
    """Return coremltools' version, or why it cannot be used. Never raises."""
    if importlib.util.find_spec("coremltools") is None:
        return Unavailable("the coremltools package is not installed", "pip install coremltools")
    try:
        with _quiet() as toolkit:
            return Available(f"coremltools {toolkit.__version__}")
    except (ImportError, OSError, AttributeError) as error:
        return Unavailable(f"coremltools cannot be loaded: {error}", "reinstall coremltools")


def find_runtime() -> Available | Unavailable:
    """Return whether Core ML itself is here. Never raises."""
    if sys.platform != "darwin":
        return Unavailable(
            f"Core ML runs on macOS only; this is {sys.platform}",
            "`ort export-coreml MODEL -o OUT.mlpackage` writes a package for it here",
        )
    return find_toolkit()


def version() -> str:
    """Return coremltools' version."""
    with _quiet() as toolkit:
        return str(toolkit.__version__)


@contextmanager
def _quiet() -> Iterator[Any]:
    """Give coremltools under the lock, without its log lines, progress bars and warnings.

    Its passes draw from numpy's global random numbers, which are the caller's: they are set back.
    """
    with _LOCK, warnings.catch_warnings():
        drawn_from = np.random.get_state()  # noqa: NPY002 - what coremltools draws from
        warnings.simplefilter("ignore")  # about versions of frameworks that nobody asked it to convert from
        os.environ.setdefault("TQDM_DISABLE", "1")  # read when its bars are made
        logger = logging.getLogger("coremltools")
        was_disabled, logger.disabled = logger.disabled, True  # on Linux it logs eight failures while it loads
        try:
            import coremltools

            yield coremltools
        finally:
            logger.disabled = was_disabled
            np.random.set_state(drawn_from)  # noqa: NPY002 - as above


@contextmanager
def _as_sdk_error(what: str) -> Iterator[None]:
    try:
        yield
    except (
        ValueError,
        TypeError,
        RuntimeError,
        AttributeError,
        KeyError,
        NotImplementedError,
        AssertionError,
    ) as error:
        text = " ".join(str(error).split())[:MAX_MESSAGE] or type(error).__name__
        raise SdkError(f"{what}: {text}") from error


@contextmanager
def _unscanned() -> Iterator[None]:
    """Leave what is in memory already out of collections: coremltools collects garbage at each conversion.

    That scans every object of the process, and takes half of the time that a small program needs. Where somebody has
    frozen objects himself, they stay so, and nothing is done.
    """
    is_frozen = gc.get_freeze_count() > 0
    if not is_frozen:
        gc.freeze()
    try:
        yield
    finally:
        if not is_frozen:
            gc.unfreeze()


def save_package(program: MilProgram, settings: BuildSettings, path: Path) -> None:
    """Build a program with coremltools and write it as an ``.mlpackage``, which is a folder.

    Raises:
        SdkError: coremltools does not take it; the operation is named.
    """
    with _quiet() as toolkit:
        sizes = _open_sizes(toolkit, program, settings)
        built = _built(toolkit, program, sizes, settings.target)
        shapes = _border_shapes(toolkit, program, settings, sizes)
        inputs = [
            toolkit.TensorType(name=port.feature, shape=shape, dtype=_NUMPY[port.mil_type])
            for port, shape in zip(program.inputs, shapes, strict=True)
        ]
        with _as_sdk_error("converting the program"), _unscanned():
            model = toolkit.convert(
                built,
                convert_to="mlprogram",
                inputs=inputs,
                minimum_deployment_target=getattr(toolkit.target, settings.target),
                compute_precision=getattr(toolkit.precision, settings.precision),
                skip_model_load=True,
                pass_pipeline=_passes(toolkit),
            )
            model.save(str(path))


def _passes(toolkit: Any) -> Any:
    """Return coremltools' passes without those that change what a program means."""
    passes = toolkit.PassPipeline()
    passes.remove_passes(set(OMITTED_PASSES))
    return passes


def _open_sizes(toolkit: Any, program: MilProgram, settings: BuildSettings) -> Mapping[Size, Any]:
    names = {size for port in program.inputs for size in port.mil_shape if isinstance(size, str)}
    choices = {name: settings.sizes.of(name) for name in sorted(names)}
    return {name: toolkit.RangeDim(each.low, each.high, default=each.low) for name, each in choices.items()}


def _border_shapes(toolkit: Any, program: MilProgram, settings: BuildSettings, sizes: Mapping[Size, Any]) -> list[Any]:
    """Return the shape of each input: sizes and ranges, or a list of shapes where the user listed sizes."""
    with _as_sdk_error("listing shapes"):
        listed = settings.sizes.shapes(port.mil_shape for port in program.inputs)
    if listed is None:
        return [_shape(port, sizes) for port in program.inputs]
    several = [port.feature for port, shapes in zip(program.inputs, listed, strict=True) if port.mil_shape != shapes[0]]
    if len(several) > 1 and settings.target == _BEFORE_LISTS:
        raise SdkError(
            f"OpenSizes lists sizes of {len(several)} inputs ({', '.join(several)}): before iOS18 Core ML lists shapes "
            "of one only; set DeploymentTarget=iOS18, or give a range such as 1..128"
        )
    return [
        toolkit.EnumeratedShapes(shapes=shapes) if port.feature in several else _shape(port, sizes)
        for port, shapes in zip(program.inputs, listed, strict=True)
    ]


def _shape(port: MilPort, sizes: Mapping[Size, Any]) -> tuple[Any, ...]:
    return tuple(sizes.get(size, size) for size in port.mil_shape)


def _built(toolkit: Any, program: MilProgram, sizes: Mapping[Size, Any], target: str) -> Any:
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.mil import Function, Program, types

    kinds = {"fp32": types.fp32, "fp16": types.fp16, "int32": types.int32}
    symbols = {name: size.symbol for name, size in sizes.items()}
    placeholders = {
        port.feature: Builder.placeholder(shape=_shape(port, symbols), dtype=kinds[port.mil_type])
        for port in program.inputs
    }
    placeholders.update(
        {each.feature: Builder.state_tensor_placeholder(shape=each.shape, dtype=types.fp16) for each in program.states}
    )
    found = Program()
    with Function(placeholders, opset_version=getattr(toolkit.target, target)) as function:
        values = dict(function.inputs)
        for operation in program.operations:
            values.update(_appended(Builder, operation, values))
        function.set_outputs([values[port.feature] for port in program.outputs])
        found.add_function("main", function)
    return found


def _appended(builder: Any, operation: MilOperation, values: Mapping[str, Any]) -> dict[str, Any]:
    with _as_sdk_error(f"operation {operation.outputs[0]!r} ({operation.kind})"):
        inputs = {name: _argument(operand, values) for name, operand in operation.inputs.items()}
        result = getattr(builder, operation.kind)(**inputs, name=operation.outputs[0])
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    return dict(zip(operation.outputs, results, strict=True))


def _argument(operand: Operand, values: Mapping[str, Any]) -> Any:
    if isinstance(operand, Ref):
        return values[operand.name]
    if isinstance(operand, tuple):
        return [_argument(each, values) for each in operand]
    if isinstance(operand, np.ndarray) and operand.ndim == 0:
        operand = operand[()]  # coremltools takes numbers, not arrays without axes
    if isinstance(operand, np.ndarray) and operand.dtype.name in _NIBBLES:
        return _as_nibbles(operand)
    if isinstance(operand, np.bool_):
        return bool(operand)  # its value inference hands flags on to functions that take Python's own
    return operand


def _as_nibbles(array: np.ndarray) -> np.ndarray:
    """Return an array of 4 bit integers as coremltools takes them: bytes whose type says that they are half used."""
    from coremltools.converters.mil.mil import types

    is_signed = array.dtype.name == "int4"
    wide = array.astype(np.int8 if is_signed else np.uint8)
    return wide.astype(types.nptype_from_builtin(types.int4 if is_signed else types.uint4))


def reload_package(path: Path) -> tuple[MilOperation, ...]:
    """Return the operations of a package that lies on disk, read back by coremltools, with constants and weights.

    Raises:
        SdkError: coremltools does not read it.
    """
    with _quiet() as toolkit, _as_sdk_error(f"reading {path.name}"):
        from coremltools.converters.mil.frontend.milproto.load import load

        model = toolkit.models.MLModel(str(path), skip_model_load=True)
        spec = model.get_spec()
        program = load(spec, spec.specificationVersion, model.weights_dir)
        operations = program.functions["main"].operations
        return tuple(_read(each) for each in operations if each.op_type != "const")


def _read(operation: Any) -> MilOperation:
    inputs = {name: _operand(var) for name, var in operation.inputs.items() if var is not None}
    return MilOperation(operation.op_type, inputs, tuple(var.name for var in operation.outputs))


def _operand(var: Any) -> Any:
    if isinstance(var, (list, tuple)):
        return tuple(_operand(each) for each in var)
    is_constant = var.op is not None and var.op.op_type == "const"
    return var.val if is_constant else Ref(var.name)


@dataclass(frozen=True, slots=True)
class Features:
    """The names at a package's border."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[str, ...]


def features_of(path: Path) -> Features:
    """Return the names of a package's inputs, outputs and states."""
    with _quiet() as toolkit, _as_sdk_error(f"reading {path.name}"):
        found = toolkit.models.MLModel(str(path), skip_model_load=True).get_spec().description
        return Features(*(tuple(each.name for each in group) for group in (found.input, found.output, found.state)))


def values_of(kind: str, inputs: Mapping[str, Any], target: str) -> tuple[Any, ...]:
    """Return the results of one operation over known values, by coremltools' own value inference.

    Raises:
        SdkError: it has none for this operation, or refuses the values.
    """
    with _quiet() as toolkit, _as_sdk_error(f"value of {kind}"):
        from coremltools.converters.mil import Builder
        from coremltools.converters.mil.mil import Function

        with Function({}, opset_version=getattr(toolkit.target, target)):
            result = getattr(Builder, kind)(**{name: _argument(each, {}) for name, each in inputs.items()})
        results = tuple(result) if isinstance(result, (list, tuple)) else (result,)
        values = tuple(each.val for each in results)
    if any(value is None for value in values):
        raise SdkError(f"coremltools has no value inference for {kind}")
    return values


class Model:
    """A package opened by Core ML. On macOS only.

    Args:
        path: the package.
        units: ``MLComputeUnits`` as onnxruntime writes them.
        strategy: ``Default`` or ``FastPrediction``.
        low_precision: whether a GPU may accumulate in half precision.
        states: names of features that the model keeps. Each run reads them behind, and writes before what it is given
            other than what the last run left.
        keeps_compiled: whether what Core ML compiles lies beside the package, for the sessions to come.
    """

    def __init__(
        self,
        path: Path,
        units: str,
        strategy: str,
        low_precision: bool,
        states: tuple[str, ...],
        *,
        keeps_compiled: bool = False,
    ) -> None:
        self._states = states
        self._kept: Any = None  # Any: coremltools' state
        self._left: dict[str, np.ndarray] = {}
        with _quiet() as toolkit, _as_sdk_error(f"opening {path.name}"):
            hints: dict[str, Any] = {}
            if strategy != "Default":
                hints["specializationStrategy"] = getattr(toolkit.SpecializationStrategy, strategy)
            if low_precision:
                hints["allowLowPrecisionAccumulationOnGPU"] = True
            given = {
                "compute_units": getattr(toolkit.ComputeUnit, _UNITS[units]),
                "optimization_hints": hints or None,
            }
            self._model = opened(toolkit.models, path, given, keeps_compiled=keeps_compiled)

    def predict(self, features: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Run once.

        Raises:
            SdkError: Core ML failed.
        """
        with _as_sdk_error("Core ML failed in a run"):
            if not self._states:
                return self._model.predict(dict(features))
            if self._kept is None:
                self._kept = self._model.make_state()
            left, self._left = self._left, {}  # a run that fails leaves nothing that is known
            for name in self._states:
                if name not in left or not are_same(left[name], features[name]):
                    self._kept.write_state(name, features[name])
            given = {name: array for name, array in features.items() if name not in self._states}
            found = dict(self._model.predict(given, self._kept))
            states = {name: np.array(self._kept.read_state(name)) for name in self._states}
            self._left = states
            return {**found, **{name: array.copy() for name, array in states.items()}}
