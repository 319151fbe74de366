"""Every error that this project raises, named and numbered as in onnxruntime, under one base class.

A message says what was being done, on which node or input, what was found and expected, and what to do next.
Classes that onnxruntime raises as Python built-ins (a missing feed is a ``ValueError`` there) inherit from both.
"""

from __future__ import annotations

import re
from typing import ClassVar

_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")  # of an error that another one quotes


class OrtError(Exception):
    """Base of every error raised by ort-core and by well-behaved plugins.

    ``shows_code`` puts onnxruntime's ``[ONNXRuntimeError] : code : NAME :`` before the text. Only the drop-in switches
    it on, for programs that search messages for it; classes that are built-in errors in onnxruntime never show it.
    """

    code: ClassVar[int] = 1
    code_name: ClassVar[str] = "FAIL"
    shows_code: ClassVar[bool] = False

    def __str__(self) -> str:
        text = Exception.__str__(self)
        if not self.shows_code or isinstance(self, (ValueError, TypeError, RuntimeError)):
            return text
        return f"[ONNXRuntimeError] : {self.code} : {self.code_name} : {_CODE.sub('', text)}"


class Fail(OrtError):
    """A step failed for a reason that fits no narrower class (code 1)."""


class InvalidArgument(OrtError):
    """An argument, a feed or an attribute does not fit what the model or the API declares (code 2)."""

    code, code_name = 2, "INVALID_ARGUMENT"


class NoSuchFile(OrtError, FileNotFoundError):
    """A file that was named does not exist (code 3)."""

    code, code_name = 3, "NO_SUCHFILE"


class NoModel(OrtError):
    """No model was loaded where one is needed (code 4)."""

    code, code_name = 4, "NO_MODEL"


class EngineError(OrtError):
    """A compiled artefact could not be used (code 5)."""

    code, code_name = 5, "ENGINE_ERROR"


class RuntimeException(OrtError):
    """A node failed while it ran (code 6)."""

    code, code_name = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(OrtError):
    """The bytes are not an ONNX protobuf (code 7)."""

    code, code_name = 7, "INVALID_PROTOBUF"


class ModelLoaded(OrtError):
    """A model is already loaded (code 8)."""

    code, code_name = 8, "MODEL_LOADED"


class NotImplemented(OrtError):  # noqa: A001 - onnxruntime's own name for it
    """No kernel, type or feature exists for what the model asks (code 9)."""

    code, code_name = 9, "NOT_IMPLEMENTED"


class KernelNotFoundError(NotImplemented):
    """No provider has a kernel for a node."""


class InvalidGraph(OrtError):
    """The model breaks a rule of ONNX (code 10)."""

    code, code_name = 10, "INVALID_GRAPH"


class MalformedGraph(Fail, InvalidGraph):
    """The nodes and names of a graph do not fit together (onnxruntime raises ``Fail`` here)."""

    code, code_name = 1, "FAIL"


class UndefinedInput(InvalidArgument, InvalidGraph):
    """A node reads what nobody gives (onnxruntime raises ``InvalidArgument`` here)."""

    code, code_name = 2, "INVALID_ARGUMENT"


class UnknownOperator(InvalidGraph, KernelNotFoundError):
    """A node's operator is none of ONNX's (onnxruntime raises ``InvalidGraph`` here)."""

    code, code_name = 10, "INVALID_GRAPH"


class UnregisteredOperator(Fail, KernelNotFoundError):
    """A node's operator is of a domain that does not have it (onnxruntime raises ``Fail`` here)."""

    code, code_name = 1, "FAIL"


class UnsupportedLibrary(Fail, NotImplemented):
    """A compiled library is to be loaded, which cannot be done here (onnxruntime raises ``Fail``)."""

    code, code_name = 1, "FAIL"


class UnfitInitializer(InvalidArgument, Fail):
    """Data given for an initializer does not fit the model (onnxruntime raises ``Fail`` here)."""

    code, code_name = 1, "FAIL"


class NodeFailed(InvalidArgument, Fail):
    """A node refused its inputs (onnxruntime raises one of the two classes, by the node's operator)."""

    code, code_name = 2, "INVALID_ARGUMENT"


class EPFail(OrtError):
    """An execution provider failed in compile or run (code 11)."""

    code, code_name = 11, "EP_FAIL"


class ModelLoadCanceled(OrtError):
    """Loading was cancelled by the caller (code 12)."""

    code, code_name = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(OrtError):
    """The session forbids compilation and the model is not compiled (code 13)."""

    code, code_name = 13, "MODEL_REQUIRES_COMPILATION"


class NotFound(OrtError):
    """A named thing is not known (code 14)."""

    code, code_name = 14, "NOT_FOUND"


class DeviceReset(OrtError):
    """A device was lost while it ran (code 15)."""

    code, code_name = 15, "DEVICE_RESET"


class ProviderUnavailable(OrtError):
    """None of the asked-for execution providers can run here; the message says why for each."""

    code, code_name = 11, "EP_FAIL"


class MissingInput(InvalidArgument, ValueError):
    """A required input has no feed (onnxruntime raises ``ValueError`` here)."""


class EmptyFeed(MissingInput, Fail):
    """The feed of a required input is ``None`` (onnxruntime raises ``Fail`` here)."""


class InvalidType(InvalidArgument, TypeError):
    """A value has a Python type that cannot be used here."""


class InvalidValue(InvalidArgument, RuntimeError):
    """A value, buffer or binding cannot be used as asked (onnxruntime raises ``RuntimeError`` here)."""


class InvalidPackage(InvalidArgument, ValueError, RuntimeError):
    """A model package cannot be used as asked (onnxruntime: ``ValueError``, of contexts ``RuntimeError``)."""


class InvalidMapping(InvalidType, AttributeError):
    """What must be a mapping is none (onnxruntime asks it for its keys, and raises ``AttributeError``)."""


class InvalidObject(InvalidType, RuntimeError):
    """A value is none of onnxruntime's objects (onnxruntime raises ``RuntimeError`` here)."""


class WrongObject(InvalidObject, AttributeError):
    """A value is none of the API's objects (onnxruntime asks it for what it holds: ``AttributeError``)."""


class InvalidRequest(InvalidType, ValueError):
    """A list of providers or of their options cannot be read (onnxruntime raises ``ValueError`` here)."""


class InvalidChoice(InvalidType, ValueError):
    """A value is no member of an enumeration (onnxruntime raises ``TypeError``, Python ``ValueError``)."""


class ForeignBinding(InvalidType, ValueError):
    """Bindings of one session were given to another (onnxruntime raises ``ValueError`` here)."""


class BoundInputMissing(MissingInput, RuntimeError):
    """A run over bindings lacks an input (onnxruntime raises ``RuntimeError`` here)."""


class BoundRunFailed(Fail, RuntimeError):
    """A run over bindings failed (onnxruntime raises ``RuntimeError`` here)."""


class NoSuchAdapter(NoSuchFile, RuntimeError):
    """A file of adapters does not exist (onnxruntime raises ``RuntimeError`` here)."""


class InvalidAdapter(InvalidProtobuf, RuntimeError):
    """A file is no file of adapters (onnxruntime raises ``RuntimeError`` here)."""


class DelegateFailed(InvalidArgument, Fail):
    """A delegate that chooses devices failed, or chose none (onnxruntime raises ``Fail`` here)."""

    code, code_name = 1, "FAIL"


class InvalidCompileRequest(InvalidArgument, ValueError):
    """A ModelCompiler cannot be made as asked (onnxruntime raises ``ValueError`` here)."""


class UnknownOption(InvalidArgument, AttributeError, RuntimeError):
    """An option's name is not known; the message lists near names.

    onnxruntime raises ``AttributeError`` for an attribute and ``RuntimeError`` for a configuration key.
    """


class RunTerminated(Fail):
    """The run was stopped by ``RunOptions.terminate``."""


class RunTimeout(Fail, TimeoutError):
    """The run passed its time limit."""


class AllocationLimitExceeded(Fail, MemoryError):
    """A value would take more bytes than the session allows."""


def did_you_mean(unknown: str, known: list[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest known names, or an empty string when none is close."""
    import difflib

    close = difflib.get_close_matches(unknown, known, n=3, cutoff=0.6)
    if not close:
        return ""
    return " Did you mean " + " or ".join(repr(name) for name in close) + "?"
