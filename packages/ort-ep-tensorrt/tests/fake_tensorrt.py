"""A module with TensorRT's names, whose engines are ONNX models that onnxruntime runs on host memory.

It is strict where the SDK is: failures are None or False and a message to the logger, addresses must be bound, shapes
must lie in the profile, work happens when the stream is waited for, objects need what they were made of.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
from fake_cuda import FakeCudaApi, FakeStream

if TYPE_CHECKING:
    import onnxruntime

__version__ = "11.4.0.0"
MAGIC = b"fake engine\n"


class ILogger:
    class Severity(enum.IntEnum):
        INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


class IOutputAllocator:
    pass


class TensorIOMode(enum.Enum):
    INPUT, OUTPUT = range(2)


class DataType(enum.Enum):
    FLOAT, HALF, INT32, INT64, BOOL, UINT8, INT8, BF16 = range(8)


class TensorLocation(enum.Enum):
    DEVICE, HOST = range(2)


class BuilderFlag(enum.Enum):
    TF32, SPARSE_WEIGHTS, VERSION_COMPATIBLE, EXCLUDE_LEAN_RUNTIME, STRIP_PLAN, REFIT = range(6)


class TacticSource(enum.IntEnum):
    EDGE_MASK_CONVOLUTIONS, JIT_CONVOLUTIONS = 3, 4


class PreviewFeature(enum.Enum):
    ALIASED_PLUGIN_IO_10_03, RUNTIME_ACTIVATION_RESIZE_10_10 = range(2)


class SerializationFlag(enum.Enum):
    EXCLUDE_WEIGHTS, EXCLUDE_LEAN_RUNTIME, INCLUDE_REFIT = range(3)


class MemoryPoolType(enum.Enum):
    WORKSPACE, TACTIC_SHARED_MEMORY = range(2)


class HardwareCompatibilityLevel(enum.Enum):
    NONE, AMPERE_PLUS = range(2)


class ProfilingVerbosity(enum.Enum):
    LAYER_NAMES_ONLY, DETAILED = range(2)


class CudaGraphStrategy(enum.Enum):
    DISABLED, WHOLE_GRAPH_CAPTURE = range(2)


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 0


_TYPES = {1: DataType.FLOAT, 10: DataType.HALF, 6: DataType.INT32, 7: DataType.INT64, 9: DataType.BOOL}
_TYPES |= {2: DataType.UINT8, 3: DataType.INT8, 16: DataType.BF16}
_SHAPE_PLACES = {"Reshape": 1, "Expand": 1, "Tile": 1, "TopK": 1}
UNSUPPORTED = {"Det", "MatMulInteger"}
builds: list[dict] = []
"""What was built, oldest first: flags, profile and settings."""
compiled: list[RuntimeConfig] = []
"""For which contexts kernels were compiled on the GPU, of TensorRT-RTX."""
loaded: list[bool] = []
"""Of each engine that was loaded, whether it may bring code of its own."""
plugins: list[str] = []
"""Libraries of plugins that were loaded."""


class PluginRegistry:
    def load_library(self, path: str) -> object | None:
        if "missing" in path:
            return None
        plugins.append(path)
        return object()


def get_plugin_registry() -> PluginRegistry:
    return PluginRegistry()


def init_libnvinfer_plugins(logger, namespace: str) -> bool:
    return True


class Tensor:
    def __init__(self, info: onnx.ValueInfoProto, model: onnx.ModelProto) -> None:
        kind = info.type.tensor_type
        self.name, self.dtype = info.name, _TYPES[kind.elem_type]
        read = ((node, _SHAPE_PLACES.get(node.op_type, -1)) for node in model.graph.node)
        self.is_shape_tensor = any(0 < at < len(node.input) and node.input[at] == self.name for node, at in read)
        self.shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim)


class Network:
    model: onnx.ModelProto

    @property
    def num_inputs(self) -> int:
        return len(self.model.graph.input)

    @property
    def num_outputs(self) -> int:
        return len(self.model.graph.output)

    def get_input(self, index: int) -> Tensor:
        return Tensor(self.model.graph.input[index], self.model)

    def get_output(self, index: int) -> Tensor:
        return Tensor(self.model.graph.output[index], self.model)


class ParserError:
    def __init__(self, place: int, text: str) -> None:
        self._place, self._text = place, text

    def node(self) -> int:
        return self._place

    def desc(self) -> str:
        return self._text

    def code(self) -> str:
        return "ErrorCode.UNSUPPORTED_NODE"


class OnnxParser:
    def __init__(self, network: Network, logger) -> None:
        self._network, self._logger, self._model, self._errors = network, logger, None, []

    num_errors = property(lambda self: len(self._errors))

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]

    def supports_operator(self, op_type: str) -> bool:
        return op_type not in UNSUPPORTED

    def load_model_proto(self, content: bytes) -> bool:
        self._model = onnx.load_from_string(content)
        return True

    def load_initializer(self, name: str, address: int, nbytes: int) -> bool:
        found = next((each for each in self._model.graph.initializer if each.name == name), None)
        if found is None:
            self._logger.log(ILogger.Severity.ERROR, f"no initializer {name}")
            return False
        found.ClearField("external_data")
        found.data_location = onnx.TensorProto.DEFAULT
        found.raw_data = ctypes.string_at(address, nbytes)
        return True

    def parse_model_proto(self) -> bool:
        refused = self._refused(self._model)
        self._errors = refused[:1]  # as the parser, which stops at the first
        if refused:
            self._logger.log(ILogger.Severity.ERROR, f"In node {refused[0].node()}: no importer")
            return False
        onnx.checker.check_model(self._model)
        self._network.model = self._model
        return True

    def supports_model_v2(self, content: bytes) -> bool:
        self._errors = self._refused(onnx.load_from_string(content))
        return not self._errors

    @staticmethod
    def _refused(model: onnx.ModelProto) -> list[ParserError]:
        return [ParserError(i, "false") for i, node in enumerate(model.graph.node) if node.op_type in UNSUPPORTED]


class Profile(dict):
    def set_shape(self, name: str, low, best, high) -> None:
        self[name] = (tuple(low), tuple(best), tuple(high))

    def set_shape_input(self, name: str, low, best, high) -> None:
        if not all(a <= b <= c for a, b, c in zip(low, best, high, strict=True)):
            raise ValueError("values are not in order")
        self[f"values of {name}"] = (tuple(low), tuple(best), tuple(high))


class TimingCache:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> bytes:
        return self.content + b"+"


class Config:
    def __init__(self) -> None:
        self.flags, self.profile, self.limits, self.timings = {BuilderFlag.TF32}, {}, {}, None
        self.builder_optimization_level = 3
        self.ignores_mismatch = None
        self.sources, self.previews = (1 << 3) | (1 << 4), set()

    def clear_flag(self, flag: BuilderFlag) -> None:
        self.flags.discard(flag)

    def set_flag(self, flag: BuilderFlag) -> None:
        self.flags.add(flag)

    def get_tactic_sources(self) -> int:
        return self.sources

    def set_tactic_sources(self, sources: int) -> bool:
        self.sources = sources
        return True

    def set_preview_feature(self, feature: PreviewFeature, is_on: bool) -> None:
        self.previews.add(feature)

    def set_memory_pool_limit(self, pool: MemoryPoolType, nbytes: int) -> None:
        self.limits[pool] = nbytes

    def add_optimization_profile(self, profile: Profile) -> int:
        self.profile = dict(profile)
        return 0

    def create_timing_cache(self, content: bytes) -> TimingCache:
        return TimingCache(content)

    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool:
        self.timings, self.ignores_mismatch = cache, ignore_mismatch
        return True


class Builder:
    fails_with = ""

    def __init__(self, logger) -> None:
        self._logger = logger

    def create_network(self, flags: int) -> Network:
        assert flags == 1, "networks are strongly typed"
        return Network()

    def create_builder_config(self) -> Config:
        return Config()

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: Network, config: Config) -> bytes | None:
        _noted("build an engine")
        if Builder.fails_with:
            self._logger.log(ILogger.Severity.ERROR, Builder.fails_with)
            return None
        builds.append({**vars(config), "timings": config.timings and config.timings.content, "model": network.model})
        model = onnx.ModelProto()
        model.CopyFrom(network.model)
        if BuilderFlag.STRIP_PLAN in config.flags:
            assert BuilderFlag.REFIT in config.flags
            _strip(model)
        return MAGIC + json.dumps(config.profile).encode() + b"\n" + model.SerializeToString()


def _strip(model: onnx.ModelProto) -> None:
    """Take the data of large weights out, and say so."""
    for each in model.graph.initializer:
        if len(each.raw_data) >= 1024:
            each.ClearField("raw_data")
            each.doc_string = "stripped"


on_devices: list[tuple[str, int]] = []
"""What was called, and which device was current then."""


def _noted(call: str) -> None:
    on_devices.append((call, FakeCudaApi.now[-1] if FakeCudaApi.now else 0))


class Runtime:
    def __init__(self, logger) -> None:
        _noted("make a runtime")
        self._logger, self.engine_host_code_allowed = logger, False

    def deserialize_cuda_engine(self, content: bytes) -> Engine | None:
        _noted("load an engine")
        if not content.startswith(MAGIC):
            self._logger.log(ILogger.Severity.ERROR, "Serialization assertion magicTag failed")
            return None
        loaded.append(self.engine_host_code_allowed)
        profile, _, model = content[len(MAGIC) :].partition(b"\n")
        return Engine(json.loads(profile), onnx.load_from_string(model), self._logger)


class RuntimeCache:
    content = ""

    def deserialize(self, content: bytes) -> bool:
        is_fitting = content.decode().startswith("kernels")
        self.content = content.decode() if is_fitting else ""
        return is_fitting

    def serialize(self) -> bytes:
        return self.content.encode()


class RuntimeConfig:
    def __init__(self) -> None:
        self.cuda_graph_strategy, self.cache = CudaGraphStrategy.DISABLED, None

    def create_runtime_cache(self) -> RuntimeCache:
        return RuntimeCache()

    def set_runtime_cache(self, cache: RuntimeCache) -> bool:
        self.cache = cache
        return True


class SerializationConfig:
    def __init__(self) -> None:
        self.flags: set[SerializationFlag] = set()

    def set_flag(self, flag: SerializationFlag) -> bool:
        self.flags.add(flag)
        return True


class Refitter:
    def __init__(self, engine: Engine, logger) -> None:
        self.engine, self.found = engine, {}

    def refit_cuda_engine(self) -> bool:
        for each in self.engine.model.graph.initializer:
            if each.name in self.found:
                each.raw_data = self.found[each.name]
                each.ClearField("doc_string")
        self.engine.__dict__.pop("session", None)
        return True


class OnnxParserRefitter:
    def __init__(self, refitter: Refitter, logger) -> None:
        self._refitter, self._logger, self._given = refitter, logger, {}

    def load_model_proto(self, content: bytes) -> bool:
        self._model = onnx.load_from_string(content)
        return True

    def load_initializer(self, name: str, address: int, nbytes: int) -> bool:
        self._given[name] = ctypes.string_at(address, nbytes)
        return True

    def refit_model_proto(self) -> bool:
        wanted = {each.name for each in self._refitter.engine.model.graph.initializer if each.doc_string == "stripped"}
        missing = wanted - self._given.keys()
        if missing:
            self._logger.log(ILogger.Severity.ERROR, f"Missing weights: {sorted(missing)}")
            return False
        self._refitter.found = self._given
        return True


class Engine:
    def __init__(self, profile: dict, model: onnx.ModelProto, logger) -> None:
        self.profile, self.model, self.logger = profile, model, logger
        self.tensors = {each.name: Tensor(each, model) for each in (*model.graph.input, *model.graph.output)}

    @functools.cached_property
    def session(self) -> onnxruntime.InferenceSession:
        import onnxruntime  # not every Python has it: what runs no engine does without

        assert not any(each.doc_string == "stripped" for each in self.model.graph.initializer), "weights are missing"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # it takes casts away
        return onnxruntime.InferenceSession(self.model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    num_io_tensors = property(lambda self: len(self.tensors))

    def get_tensor_name(self, index: int) -> str:
        return list(self.tensors)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        outputs = {each.name for each in self.model.graph.output}
        return TensorIOMode.OUTPUT if name in outputs else TensorIOMode.INPUT

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.HOST if self.tensors[name].is_shape_tensor else TensorLocation.DEVICE

    def create_execution_context(self, config: RuntimeConfig | None = None) -> Context:
        _noted("make a context")
        if config is not None and config.cache is not None and "kernels" not in config.cache.content:
            config.cache.content += "kernels"  # as TensorRT-RTX, which compiles them now
            compiled.append(config)
        return Context(self)

    def create_runtime_config(self) -> RuntimeConfig:
        return RuntimeConfig()

    def create_serialization_config(self) -> SerializationConfig:
        return SerializationConfig()

    def serialize(self) -> bytes:
        return MAGIC + json.dumps(self.profile).encode() + b"\n" + self.model.SerializeToString()

    def serialize_with_config(self, config: SerializationConfig) -> bytes:
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        if SerializationFlag.EXCLUDE_WEIGHTS in config.flags:
            _strip(model)
        return MAGIC + json.dumps(self.profile).encode() + b"\n" + model.SerializeToString()


class Context:
    fails_with = ""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._shapes, self._addresses, self._allocators = engine, {}, {}, {}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        static, bounds = self._engine.tensors[name].shape, self._engine.profile.get(name)
        low, high = (bounds[0], bounds[2]) if bounds else (static, static)
        if len(shape) != len(low) or not all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True)):
            self._engine.logger.log(ILogger.Severity.ERROR, f"Set dimensions do not satisfy any profile: {shape}")
            return False
        self._shapes[name] = tuple(shape)
        return True

    def infer_shapes(self) -> list[str]:
        return [each.name for each in self._engine.model.graph.input if each.name not in self._shapes]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if any(each.op_type == "NonZero" and name in each.output for each in self._engine.model.graph.node):
            return (*self._engine.tensors[name].shape[:1], -1)
        return self._computed({**self._zeros(), **self._values()})[name].shape

    def _values(self) -> dict[str, np.ndarray]:
        """Return what lies at the addresses of inputs that are read on the host."""
        zeros = self._zeros()
        found = {n: _at(self._addresses[n], z) for n, z in zeros.items() if self._engine.tensors[n].is_shape_tensor}
        for name, array in found.items():
            low, _, high = self._engine.profile[f"values of {name}"]
            assert np.all(np.asarray(low) <= array.reshape(-1)), f"{name} lies outside of the profile"
            assert np.all(array.reshape(-1) <= np.asarray(high)), f"{name} lies outside of the profile"
        return found

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._addresses[name] = address
        return address != 0

    def set_output_allocator(self, name: str, allocator) -> bool:
        self._allocators[name] = allocator
        return True

    def execute_async_v3(self, stream: int) -> bool:
        _noted("run")
        if Context.fails_with:
            self._engine.logger.log(ILogger.Severity.ERROR, Context.fails_with)
            return False
        addresses = dict(self._addresses)
        for name, allocator in self._allocators.items():  # an upper bound of its size is taken before the work
            addresses[name] = allocator.reallocate_output_async(name, 0, 1 << 12, 256, stream)
            if not addresses[name]:
                return False
        FakeStream.of(stream).enqueue(lambda: self._work(addresses))
        return True

    def _work(self, addresses: dict[str, int]) -> None:
        feeds = {name: _at(addresses[name], zeros) for name, zeros in self._zeros().items()}
        for name, array in self._computed(feeds).items():
            ctypes.memmove(addresses[name], np.ascontiguousarray(array).ctypes.data, array.nbytes)
            if name in self._allocators:
                self._allocators[name].notify_shape(name, array.shape)

    def _zeros(self) -> dict[str, np.ndarray]:
        dtypes = {each.name: each.type.tensor_type.elem_type for each in self._engine.model.graph.input}
        return {n: np.zeros(s, onnx.helper.tensor_dtype_to_np_dtype(dtypes[n])) for n, s in self._shapes.items()}

    def _computed(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        names = [each.name for each in self._engine.model.graph.output]
        return dict(zip(names, self._engine.session.run(names, feeds), strict=True))


def _at(address: int, like: np.ndarray) -> np.ndarray:
    return np.frombuffer(ctypes.string_at(address, like.nbytes), like.dtype).reshape(like.shape)
