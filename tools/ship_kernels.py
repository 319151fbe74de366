"""Write the machine code that a wheel of ort-core carries: modules that many models need, for each level and system.

    python tools/ship_kernels.py                                 into the source tree, where a wheel takes them from
    python tools/ship_kernels.py FOLDER --only x86_64-unknown-linux-gnu

The same sources and the same llvmlite give the same bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import onnx
import typer

from common_layers import SIZES, layers
from native_texts import recorded_kernels
from ort_core.cpu.codegen.convolutions.winograd_blocks import product_text
from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel, name_of_facts
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import ModuleText, object_code
from ort_core.cpu.codegen.machine_code.levels import levels
from ort_core.cpu.codegen.machine_code.shipped_code import FOLDER, file_name, shipped_file, text_name
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.microkernel import tiles_text
from ort_core.cpu.direct.call_code import call_text
from ort_core.cpu.direct.python_layout import LOCKED_HEADER, UNLOCKED_HEADER, array_layout
from ort_core.cpu.rounds.round_code import rounds_text
from ort_core.cpu.threads.pool_code import pool_text
from ort_core.cpu.threads.primitives import primitives_for
from ort_core.environment import default_environment
from ort_core.onnx_io.load import load_model
from ort_core.options import SessionOptions
from ort_core.stages import prepare

MOST_NBYTES = 5_000_000
SMALL_CACHES = "haswell"  # a processor that code is written for otherwise (``Target.second_level_nbytes``)
MORE_FEATURES = "+avx512vnni,+avxvnni,+avx512bf16,+avx512fp16,+f16c,+dotprod,+fp16fml,+fullfp16,+bf16"


def common_modules(level: Target) -> dict[str, ModuleText]:
    """Return each module that machines of a level need for models of any sizes, by the name that a load looks for."""
    of_host = (
        pool_text(level.triple, primitives_for(level.triple)),
        call_text(array_layout(LOCKED_HEADER), is_locked=True),
        call_text(array_layout(UNLOCKED_HEADER), is_locked=False),
        rounds_text(),
    )
    of_level = {"tiles": tiles_text(level), "winograd_product": product_text(level)}
    return {
        **{text_name(text, is_vectorized=False): ModuleText(text) for text in of_host},
        **{
            name_of_facts(prefix, "", is_vectorized=True): ModuleText(text, is_vectorized=True)
            for prefix, text in of_level.items()
        },
    }


def shape_free_kernels(level: Target) -> dict[str, ModuleText]:
    """Return the kernels that layers of all sizes lower to for a level, by the name that a load looks for."""
    first, *others = (kernels_of(layers(sizes), level) for sizes in SIZES)
    return {name: text for name, text in first.items() if all(name in other for other in others)}


def kernels_of(models: Iterable[onnx.ModelProto], level: Target) -> dict[str, ModuleText]:
    """Return the kernels that models lower to for a level, by name.

    A kernel that would be another one for some processor of the level is left out.

    Raises:
        ValueError: a model lowers to none.
    """
    found = {}
    other = replace(level, cpu=SMALL_CACHES, features=f"{level.features},{MORE_FEATURES}")
    for model in models:
        texts, others = (_texts(model, target) for target in (level, other))
        if not texts:
            operators = ", ".join(node.op_type for node in model.graph.node)
            raise ValueError(f"a layer of {operators} lowers to no kernel for {level.triple} {level.cpu}")
        found.update({name: text for name, text in texts.items() if others.get(name) == text})
    return found


def _texts(model: onnx.ModelProto, target: Target) -> dict[str, ModuleText]:
    options = SessionOptions()
    options.add_session_config_entry("session.optimized_model_cache", "0")
    with recorded_kernels(target) as kernels:
        prepare(load_model(model), options, default_environment(), [("CPUExecutionProvider", {})])
    found = {}
    for kernel in kernels.values():
        code = kernel.code
        if isinstance(code, DeferredKernel):
            found[code.name] = ModuleText(module_text(code.generate(code.name)), code.is_vectorized)
        else:
            text = code if isinstance(code, str) else module_text([code])
            name = text_name(text, is_vectorized=kernel.is_vectorized)
            found[name] = ModuleText(text, kernel.is_vectorized)
    return found


def write_level(folder: Path, level: Target, kernels: Mapping[str, ModuleText]) -> int:
    """Compile and write what comes with the package for a level; return how many modules."""
    texts = {**common_modules(level), **kernels}
    codes = {name: object_code(each.text, level, is_vectorized=each.is_vectorized) for name, each in texts.items()}
    (folder / file_name(level)).write_bytes(shipped_file(level, codes))
    return len(codes)


def main(
    folder: Annotated[Path, typer.Argument(help="Where to; what it holds of an earlier time goes.")] = Path(FOLDER),
    only: Annotated[str, typer.Option(help="The one triple to write for.")] = "",
) -> None:
    """Compile and write all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.bin"):
        old.unlink()
    chosen = [level for level in levels() if only in ("", level.triple)]
    count = sum(write_level(folder, level, shape_free_kernels(level)) for level in chosen)
    nbytes = sum(len(zlib.compress(file.read_bytes())) for file in folder.glob("*.bin"))  # as a wheel is
    typer.echo(f"{count} modules, {nbytes / 1e6:.2f} MB compressed, in {folder}")
    if nbytes > MOST_NBYTES:
        raise SystemExit(f"they are larger than the {MOST_NBYTES / 1e6:.0f} MB that a wheel may grow by")


if __name__ == "__main__":
    typer.run(main)
