"""Asks the real cuDNN and cuBLASLt about library steps, for an H200 that is not here; prints JSON, a line for each.

Run by ``test_real_libraries`` in an environment where the driver is a stub. For cuDNN this is its own check of support;
of cuBLASLt descriptors and preferences are real, and its heuristics, which need a device, are not asked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ort_core.plugin.cache import ArtefactCache
from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.engines.cudnn_plans import CudnnPlans
from ort_ep_cuda.engines.lt_products import LtProducts
from ort_ep_cuda.engines.tuning import Tuner
from ort_ep_cuda.lowering.libraries.library_steps import (
    NO_EPILOGUE,
    Activation,
    Convolution,
    Epilogue,
    MatrixProduct,
    Normalization,
    ScaledAttention,
    Window,
)
from ort_ep_cuda.lowering.products.convolutions import channels_last
from ort_ep_cuda.lowering.values.views import Shape, TensorView
from ort_ep_cuda.options import CudaOptions

H200 = {
    "deviceName": "NVIDIA H200", "cudaDeviceId": 0, "deviceId": 0, "deviceVer": 900, "driverVer": 13000,
    "totalGlobalMem": 150109880320, "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536, "multiProcessorCount": 132, "smCountOrigin": 0, "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "oversizedSharedMemoryPerBlock": 0,
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000,
    "memClockRateKHz": 3201000, "memoryBusWidth": 6144, "l2CacheSize": 62914560,
}  # fmt: skip
TYPES = {"float": DataType.FLOAT, "float16": DataType.FLOAT16, "bfloat16": DataType.BFLOAT16}


def convolution(
    dtype: DataType, *, is_channels_last: bool = True, groups: int = 1, size: int = 3, kind: str = "relu",
    has_bias: bool = True, has_addend: bool = False, is_transposed: bool = False, space: int = 2,
) -> Convolution:  # fmt: skip
    """Return a convolution as of ResNet-50."""
    image: Shape = (8, 64, *[28] * space)
    order = channels_last(space + 2) if is_channels_last else ()
    out, x = (TensorView.in_order(0, dtype, image, order) for _ in range(2))
    weights = TensorView.in_order(0, dtype, (64, 64 // groups, *[size] * space), order)
    bias = TensorView.dense(0, dtype, (64,)) if has_bias else None
    activation = Activation(kind, 0.0, 6.0) if kind else None
    epilogue = Epilogue(bias, out if has_addend else None, 1.0, activation)
    pads, ones = (size // 2,) * space, (1,) * space
    return Convolution(out, x, weights, Window(pads, pads, ones, ones), groups, is_transposed, epilogue)


def attention(dtype: DataType, *, size: int = 64, shared: int = 12, has_bias: bool = False, is_causal: bool = False):
    """Return the attention of a transformer whose heads lie side by side, as projections give them."""
    q, k, v = (
        TensorView.dense(0, dtype, (2, 128, heads, size)).permuted((0, 2, 1, 3)) for heads in (12, shared, shared)
    )
    bias = TensorView.dense(0, dtype, (2, 1, 128, 128)) if has_bias else None
    return ScaledAttention(q, q, k, v, size**-0.5, bias, is_causal)


def normalizations(dtype: DataType) -> Iterator[tuple[str, Normalization]]:
    """Yield the normalizations of transformers, and one of images."""
    rows, factors = TensorView.dense(0, dtype, (4096, 768)), TensorView.dense(0, dtype, (768,))
    yield "layer", Normalization(rows, rows, factors, factors, 1e-5, "layer")
    yield "unbiased layer", Normalization(rows, rows, factors, None, 1e-5, "layer")
    yield "rms", Normalization(rows, rows, factors, None, 1e-6, "rms")
    image, channels = TensorView.dense(0, dtype, (2, 64, 32, 32)), TensorView.dense(0, dtype, (64,))
    yield "instance", Normalization(image, image, channels, channels, 1e-5, "instance")
    line = TensorView.dense(0, dtype, (2, 64, 1024))
    yield "instance of one axis", Normalization(line, line, channels, channels, 1e-5, "instance")


def product(dtype: DataType, kind: str) -> MatrixProduct:
    """Return the first product of a transformer's network, with a bias and an activation."""
    a, b, out = (TensorView.dense(0, dtype, shape) for shape in ((1, 128, 768), (1, 768, 3072), (1, 128, 3072)))
    return MatrixProduct(out, a, b, 1.0, Epilogue(TensorView.dense(0, dtype, (3072,)), None, 1.0, Activation(kind)))


def cudnn_cases() -> Iterator[tuple[str, Any, dict[str, object]]]:
    """Yield steps with options."""
    for name, dtype in TYPES.items():
        for is_last in (True, False):
            lies = "last" if is_last else "first"
            for kind in ("", "relu", "clip", "gelu", "sigmoid", "tanh"):
                step = convolution(dtype, is_channels_last=is_last, kind=kind)
                yield f"convolution {name} {lies} bias {kind}", step, {}
            residual = convolution(dtype, is_channels_last=is_last, has_addend=True)
            yield f"convolution {name} {lies} residual relu", residual, {}
            plain = convolution(dtype, is_channels_last=is_last, kind="", has_bias=False)
            yield f"convolution {name} {lies} plain", plain, {}
            yield f"convolution {name} {lies} plain tf32", plain, {"use_tf32": True}
            deep = convolution(dtype, is_channels_last=is_last, kind="", has_bias=False, groups=64)
            yield f"convolution {name} {lies} depthwise", deep, {}
            turned = convolution(dtype, is_channels_last=is_last, kind="", has_bias=False, is_transposed=True)
            yield f"convolution {name} {lies} transposed", turned, {}
        line = convolution(dtype, is_channels_last=False, kind="", has_bias=False, space=1)
        yield f"convolution {name} of one axis", line, {}
        cube = convolution(dtype, kind="", has_bias=False, space=3)
        yield f"convolution {name} of three axes", cube, {}
        for size in (64, 128):
            yield f"attention {name} {size}", attention(dtype, size=size), {}
        for kind, step in normalizations(dtype):
            yield f"{kind} normalization {name}", step, {}
        for kind in ("gelu", "sigmoid", "tanh"):
            yield f"product {name} {kind}", product(dtype, kind), {}
            yield f"product {name} {kind} tf32", product(dtype, kind), {"use_tf32": True}
        yield f"attention {name} tf32", attention(dtype), {"use_tf32": True}
        yield f"attention {name} bias tf32", attention(dtype, has_bias=True), {"use_tf32": True}
        yield f"attention {name} causal", attention(dtype, is_causal=True), {}
        yield f"attention {name} bias", attention(dtype, has_bias=True), {}
        yield f"attention {name} shared heads", attention(dtype, shared=4), {}


class WithoutDevice:
    """cuBLASLt without what needs a device: handle and heuristics."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def create(self) -> int:
        return 0

    def destroy(self, handle: int) -> None:
        assert handle == 0

    def matmul_algo_get_heuristic(self, *arguments: int) -> None:
        assert len(arguments) == 10
        assert all(isinstance(argument, int) for argument in arguments)


def product_cases() -> Iterator[tuple[str, MatrixProduct]]:
    """Yield products with each epilogue."""
    for name, dtype in TYPES.items():
        a, b, out = (TensorView.dense(0, dtype, shape) for shape in ((3, 8, 16), (3, 16, 24), (3, 8, 24)))
        turned = TensorView.dense(0, dtype, (3, 24, 16)).permuted((0, 2, 1))
        bias = TensorView.dense(0, dtype, (24,))
        kinds = (None, Activation("relu"), Activation("gelu_tanh"))
        for number, activation in enumerate(kinds):
            yield f"product {name} {number}", MatrixProduct(out, a, b, 1.0, Epilogue(bias, out, 1.0, activation))
        yield f"product {name} turned", MatrixProduct(out, a, turned, 1.0, NO_EPILOGUE)


def main() -> int:
    """Print a line for each step: its name, and the reason for which it is refused."""
    cudnn = _sdk.cudnn()
    device = cudnn.create_device_properties(json.dumps(H200))
    tuner = Tuner((), _sdk.library_errors(), ArtefactCache())
    for name, step, options in cudnn_cases():
        plans = CudnnPlans(CudaOptions(**options), tuner, None, device)
        reason = plans.refuse(step)
        sys.stdout.write(json.dumps({"name": name, "reason": reason, "plans": len(plans.candidates(step))}) + "\n")
    real = _sdk.cublas_lt()
    _sdk.cublas_lt = lambda: WithoutDevice(real)
    products = LtProducts(False, tuner, lambda: 0)
    for name, step in product_cases():
        sys.stdout.write(json.dumps({"name": name, "reason": products.refuse(step), "plans": 0}) + "\n")
    content = np.dtype(real.matmul_heuristic_result_dtype)
    versions = {"cudnn": cudnn.backend_version(), "cublaslt": real.get_version(), "record": content.itemsize}
    sys.stdout.write(json.dumps({"versions": versions}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
