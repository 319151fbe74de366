"""Stands for the driver and the runtime of CUDA where there are none, so that real libraries load and can be asked.

Functions of the driver answer that there is no device, except for its version; those of the runtime that all is well.
Nothing can be run with them: what they allow is to describe, to ask heuristics, and to check.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_DRIVER = [
    "cuCtxGetCurrent",
    "cuCtxGetLimit",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuInit",
    "cuKernelGetAttribute",
    "cuKernelGetFunction",
    "cuKernelSetAttribute",
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLibraryGetKernel",
    "cuLibraryLoadData",
    "cuLibraryLoadFromFile",
    "cuLibraryUnload",
    "cuLinkAddData",
    "cuLinkComplete",
    "cuLinkCreate",
    "cuLinkDestroy",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuOccupancyMaxPotentialClusterSize",
    "cuStreamGetCtx",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapEncodeTiled",
]
_RUNTIME = [
    "cudaDeviceSynchronize",
    "cudaEventCreate",
    "cudaEventDestroy",
    "cudaEventElapsedTime",
    "cudaEventRecord",
    "cudaEventSynchronize",
    "cudaFree",
    "cudaGetDriverEntryPointByVersion",
    "cudaGetLastError",
    "cudaGraphAddChildGraphNode",
    "cudaGraphAddMemcpyNode1D",
    "cudaGraphAddMemsetNode",
    "cudaGraphChildGraphNodeGetGraph",
    "cudaGraphCreate",
    "cudaGraphDestroy",
    "cudaGraphGetNodes",
    "cudaGraphGetRootNodes",
    "cudaGraphMemcpyNodeSetParams1D",
    "cudaGraphMemsetNodeSetParams",
    "cudaGraphNodeGetDependentNodes",
    "cudaGraphRetainUserObject",
    "cudaKernelSetAttributeForDevice",
    "cudaLaunchKernel",
    "cudaLibraryGetKernel",
    "cudaLibraryLoadData",
    "cudaLibraryUnload",
    "cudaMalloc",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
    "cudaPointerGetAttributes",
    "cudaRuntimeGetVersion",
    "cudaStreamBeginCapture",
    "cudaStreamCreate",
    "cudaStreamDestroy",
    "cudaStreamEndCapture",
    "cudaStreamGetCaptureInfo",
    "cudaStreamGetCaptureInfo_v2",
    "cudaStreamIsCapturing",
    "cudaStreamSynchronize",
    "cudaThreadExchangeStreamCaptureMode",
    "cudaUserObjectCreate",
    "cudaUserObjectRelease",
]
_DRIVER_VERSION = "int cuDriverGetVersion(int* version) { *version = 13000; return 0; }\n"
# Attributes 75 and 76: compute capability 9.0; 16: multiprocessors; 97: shared memory of a block, as of an H200.
_RUNTIME_FACTS = (
    "int cudaDeviceGetAttribute(int* value, int which, int device) {\n"
    "  *value = which == 75 ? 9 : which == 16 ? 132 : which == 97 ? 232448 : 0; return 0; }\n"
    "int cudaGetDevice(int* device) { *device = 0; return 0; }\n"
    'const char* cudaGetErrorString(int error) { return "no runtime"; }\n'
)


def build_stubs(folder: Path) -> dict[str, str]:
    """Compile both into a folder; return the variables of the environment that let a process find them."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None, "a C compiler is needed"
    driver = _DRIVER_VERSION + "".join(f"int {name}() {{ return {NO_DEVICE}; }}\n" for name in _DRIVER)
    runtime = _RUNTIME_FACTS + "".join(f"int {name}() {{ return 0; }}\n" for name in _RUNTIME)
    for name, source in (("libcuda.so.1", driver), ("libcudart.so", runtime)):
        text = folder / f"{name}.c"
        text.write_text(source, encoding="utf-8")
        command = [compiler, "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", str(text), "-o", str(folder / name)]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return {"LD_LIBRARY_PATH": str(folder), "CUDNN_FRONTEND_CUDART_LIB_NAME": str(folder / "libcudart.so")}
