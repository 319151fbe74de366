"""A claim built without a device: lowered for sizes that stand for all, its kernels compiled to machine code.

What libraries run is not asked here: without a device they answer nothing.
"""

from __future__ import annotations

from ort_core.plugin import CompileRequest, Rejection, Unavailable
from ort_core.plugin.ir import Value
from ort_ep_cuda import _sdk
from ort_ep_cuda.kernel_cache import KernelCache
from ort_ep_cuda.lowering.decomposition import in_parts
from ort_ep_cuda.lowering.lower_partition import host_inputs, lower_partition
from ort_ep_cuda.lowering.values.views import Shape

ARCHITECTURE = "sm_90"  # for which kernels are compiled where no device says another
OPEN_SIZE = 2  # of dimensions that are not known


def build_claim(request: CompileRequest) -> Rejection | None:
    """Lower a claim and compile its kernels; what comes of it is kept in the artefact cache.

    Returns:
        Why nothing was built: NVRTC is not there, or contents of inputs decide sizes.

    Raises:
        EPFail: the claim does not lower at these sizes.
        RuntimeError: a kernel does not compile; the message has the compiler's words.
    """
    found = _sdk.find_compiler()
    if isinstance(found, Unavailable):
        return Rejection(f"nothing was built: {found}")
    graph, _ = in_parts(request.graph, request.context)
    wanted = host_inputs(graph)
    if wanted:
        return Rejection(f"nothing was built: the content of {graph.inputs[wanted[0]].name!r} decides sizes")
    program = lower_partition(graph, request.context, [_shape(value) for value in graph.inputs], {})
    compiler = f"nvrtc {_sdk.nvrtc_version()}"
    cache = KernelCache(ARCHITECTURE, compiler, _sdk.machine_code)
    generated = [kernel for kernel in program.kernels() if not kernel.entry]
    if generated:
        cache.code_of(generated)
    for kernel in program.kernels():
        if kernel.entry:
            cache.code_of_source(kernel.source)
    return None


def _shape(value: Value) -> Shape:
    return tuple(size if isinstance(size, int) else OPEN_SIZE for size in value.shape or ())
