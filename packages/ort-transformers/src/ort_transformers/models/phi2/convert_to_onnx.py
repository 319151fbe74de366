"""Convert a Phi-2 into ONNX models with caches, one for each form that is asked for, and compare them with torch.

python -m ort_transformers.models.phi2.convert_to_onnx --fp32_cpu --int4_cpu --output_dir OUT [--model FOLDER]
"""

from __future__ import annotations

import argparse
import importlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ort_core.cli.interrupts import run_program
from ort_transformers.benchmark_helper import Precision
from ort_transformers.fusion_options import AttentionOpType, FusionOptions
from ort_transformers.models.llama.convert_to_onnx import largest_difference_of, remove_existing_model
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.optimizer import optimize_model

log = logging.getLogger("ort_transformers.models.phi2.convert_to_onnx")  # not __name__, which may be __main__

MODEL = "microsoft/phi-2"
FLAG: dict[str, Any] = {"action": "store_true"}
_FORM = "decoder_merged"
_CLOSE = 1e-3  # float32 of deep models differs by some 1e-5, a wrong mask by 1e-2 and more


@dataclass(frozen=True)
class Form:
    """One file: its operator for attention, the type of its weights, and for whom it is."""

    attention: AttentionOpType
    precision: Precision
    text: str


FORMS = {
    "fp32_cpu": Form(AttentionOpType.MultiHeadAttention, Precision.FLOAT32, "float32 for CPUs"),
    "int4_cpu": Form(AttentionOpType.MultiHeadAttention, Precision.INT4, "int4 for CPUs"),
    "fp32_gpu": Form(AttentionOpType.Attention, Precision.FLOAT32, "float32 for GPUs"),
    "fp16_gpu": Form(AttentionOpType.Attention, Precision.FLOAT16, "float16 for GPUs"),
    "int4_gpu": Form(AttentionOpType.Attention, Precision.INT4, "int4 for GPUs"),
    "fp16_gpu_sm8x": Form(AttentionOpType.GroupQueryAttention, Precision.FLOAT16, "float16 for GPUs, grouped heads"),
    "int4_gpu_sm8x": Form(AttentionOpType.GroupQueryAttention, Precision.INT4, "int4 for GPUs, grouped heads"),
    "fp16_vllm": Form(AttentionOpType.PagedAttention, Precision.FLOAT16, "not available: pages of caches"),
    "int4_vllm": Form(AttentionOpType.PagedAttention, Precision.INT4, "not available: pages of caches"),
}


class ConvertPhi2ToONNX:
    """What a conversion is made of.

    Args:
        device: where torch's model is.
        model_class: a folder, or a name on the hub.
        cache_dir: where models of the hub are kept.
    """

    def __init__(self, device: Any, model_class: str = MODEL, cache_dir: str = "./cache") -> None:
        self.model_class = model_class
        self.device = device
        self.cache_dir = cache_dir
        config = importlib.import_module("transformers").AutoConfig
        self.phi_config = config.from_pretrained(model_class, cache_dir=cache_dir)
        self.phi_model: Any = None
        self.attn_op_type: AttentionOpType | None = None
        self.precision: Precision | None = None
        self.block_size = 16
        self.accuracy_level: int | None = None

    def set_quantization_params(self, block_size: int, accuracy_level: int | None) -> None:
        """Say how many weights have one factor, and how exactly products are computed."""
        self.block_size, self.accuracy_level = block_size, accuracy_level

    def init_attn_type_and_precision(self, attn_op_type: AttentionOpType, precision: Precision) -> None:
        """Say which form comes next."""
        self.attn_op_type, self.precision = attn_op_type, precision

    def erase_onnx_model(self, onnx_path: str) -> None:
        """Remove a file and the weights beside it."""
        remove_existing_model(onnx_path)

    def get_phi2_torch_model(self) -> Any:
        """Load torch's model, once, and return it with tensors for its caches."""
        if self.phi_model is None:
            modules = importlib.import_module("ort_transformers.models.llama.llama_modules")
            loaded = importlib.import_module("transformers").AutoModelForCausalLM.from_pretrained(
                self.model_class, cache_dir=self.cache_dir
            )
            self.phi_model = modules.LlamaWithPast(loaded.float().eval().to(self.device)).eval()
        return self.phi_model

    def get_phi2_torch_inputs(self, batch_size: int, sequence_length: int) -> list[Any]:
        """Return tokens, mask, positions, and caches of as many tokens before."""
        modules = importlib.import_module("ort_transformers.models.llama.llama_modules")
        given = modules.random_inputs(self.phi_config, batch_size, sequence_length, sequence_length, has_past=True)
        return [each.to(self.device) for each in given]

    def dynamo_export(self, onnx_path: str) -> None:
        """Write the model as torch's TorchScript exporter has it: fusions make the same of dynamo's."""
        modules = importlib.import_module("ort_transformers.models.llama.llama_modules")
        importlib.import_module("ort_transformers.models.torch_export").export_torch(
            self.get_phi2_torch_model(), self.get_phi2_torch_inputs(2, 8), onnx_path,
            modules.decoder_signature(self.phi_config, _FORM), use_external_data_format=True,
        )  # fmt: skip

    def optimize_phi2_onnx(self, onnx_path: str, onnx_path_opt: str) -> None:
        """Write the form that was said last.

        Raises:
            ValueError: none was said.
        """
        if self.attn_op_type is None or self.precision is None:
            raise ValueError("which form to write is not known: call init_attn_type_and_precision first")
        options = FusionOptions("phi")
        options.set_attention_op_type(self.attn_op_type)
        fused: OnnxModel = optimize_model(
            onnx_path, "phi", self.phi_config.num_attention_heads, self.phi_config.hidden_size, options, opt_level=0
        )
        if self.precision is not Precision.FLOAT32 and self.attn_op_type is not AttentionOpType.MultiHeadAttention:
            # Attentions of the last layers go beyond float16's range; which they are differs between checkpoints.
            kinds = ["Attention", "MultiHeadAttention", "GroupQueryAttention"]
            fused.convert_float_to_float16(keep_io_types=False, op_block_list=kinds)
        if self.precision is Precision.INT4:
            quantizer = importlib.import_module("ort_core.quantization.matmul_nbits_quantizer").MatMulNBitsQuantizer(
                model=fused.model, bits=4, block_size=self.block_size, is_symmetric=True,
                accuracy_level=self.accuracy_level,
            )  # fmt: skip
            quantizer.process()
            OnnxModel.save(quantizer.model.model, onnx_path_opt, save_as_external_data=True)
        else:
            fused.save_model_to_file(onnx_path_opt, use_external_data_format=True)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Convert a Phi-2 into ONNX models with caches.")
    add = parser.add_argument
    for name, form in FORMS.items():
        add(f"--{name}", **FLAG, help=f"write {form.text}" if "not" not in form.text else form.text)
    add("--use_cuda_graph", **FLAG, help="not available: it needs CUDA")
    add("--overwrite", **FLAG, help="export again where a file is there")
    add("--cache_dir", default="./cache", help="where models of the hub are kept")
    add("--device_id", type=int, default=0, help="the GPU of torch's model, where there is one")
    add("--run_example", **FLAG, help="not available: `ort genai` runs decoders")
    add("--run_benchmark", **FLAG, help="not available: `ort bench` measures files")
    add("--skip_export", **FLAG, help="write nothing")
    add("--output_dir", default="phi2_onnx_models", help="the folder of the files")
    add("--block_size", default=16, type=int, help="how many weights of int4 have one factor")
    add("--int4_accuracy_level", type=int, help="of products: 4 is by whole numbers")
    add(
        "--model",
        default=MODEL,
        help="a folder of transformers' Phi, or a name on the hub",
    )
    return parser.parse_args(argv)


def _refuse(args: argparse.Namespace) -> list[str]:
    wanted = [name for name in FORMS if getattr(args, name)]
    if any(FORMS[name].attention is AttentionOpType.PagedAttention for name in wanted):
        raise ValueError("--fp16_vllm and --int4_vllm are for CUDA's pages: take --fp16_gpu_sm8x or --int4_cpu")
    if args.use_cuda_graph:
        raise ValueError("--use_cuda_graph needs CUDA: leave it out, the file is the same without")
    if args.run_example or args.run_benchmark:
        raise ValueError(
            "--run_example and --run_benchmark are not available: `ort genai` runs a decoder, `ort bench` measures it"
        )
    if not wanted:
        known = ", ".join(f"--{name}" for name in FORMS if not name.endswith("vllm"))
        raise ValueError(f"no form is asked for: give one of {known}")
    return wanted


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Convert the model that the command line names.

    Returns:
        How far each file's outputs lie from torch's at most, by path.

    Raises:
        ValueError: no form is asked for, or one that is not available.
        ModuleNotFoundError: torch or transformers is not installed.
    """
    args = parse_arguments(argv)
    wanted = _refuse(args)
    if args.skip_export:
        return {}
    torch = importlib.import_module("torch")
    device = torch.device("cuda", args.device_id) if torch.cuda.is_available() else torch.device("cpu")
    converter = ConvertPhi2ToONNX(device, args.model, args.cache_dir)
    converter.set_quantization_params(args.block_size, args.int4_accuracy_level)
    Path(args.output_dir).mkdir(parents=True, exist_ok=True)
    original = str(Path(args.output_dir, "phi2_original.onnx"))
    if args.overwrite or not Path(original).exists():
        converter.dynamo_export(original)
    found = {}
    for name in wanted:
        path = str(Path(args.output_dir, f"phi2_decoder_{name}.onnx"))
        converter.init_attn_type_and_precision(FORMS[name].attention, FORMS[name].precision)
        converter.optimize_phi2_onnx(original, path)
        found[path] = largest_difference_of(converter.get_phi2_torch_model().cpu(), path, _FORM)
        log.info("%s: results differ from torch's by up to %.3g", path, found[path])
        if FORMS[name].precision is Precision.FLOAT32 and found[path] > _CLOSE:
            log.warning("%s: results are not close to torch's", path)
    return found


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    run_program(main)
