"""Convert a T5 or mT5 of transformers into two ONNX models, encoder and decoder with caches, and compare them.

python -m ort_transformers.models.t5.convert_to_onnx -m FOLDER --output OUT -o
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx.shape_inference import infer_shapes_path

from ort_core.cli.interrupts import run_program
from ort_transformers.benchmark_helper import Precision, create_onnxruntime_session, prepare_environment, setup_logger
from ort_transformers.models.t5.names import PRETRAINED_MT5_MODELS, PRETRAINED_T5_MODELS

log = logging.getLogger("ort_transformers.models.t5.convert_to_onnx")  # not __name__, which may be __main__

FLAG: dict[str, Any] = {"action": "store_true"}

_CLOSE = 1e-4  # float32 of small models differs by some 1e-6, a wrong mask by 1e-2 and more
_MAX_LAYERS_IN_ONE_FILE = 24  # t5-large has 24 layers and 3 GB in two files, 3b is above the limit


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Convert a T5 or mT5 into ONNX models of encoder and decoder.")
    add = parser.add_argument
    known = ", ".join(PRETRAINED_T5_MODELS + PRETRAINED_MT5_MODELS)
    add("-m", "--model_name_or_path", default=PRETRAINED_T5_MODELS[0], help=f"a folder, or a name as {known}")
    add("--model_type", default="t5", choices=["t5", "mt5"], help="which of the two it is")
    add("--cache_dir", default=os.path.join(".", "cache_models"), help="where models of the hub are kept")
    add("--output", default=os.path.join(".", "onnx_models"), help="the folder of the files")
    add("-o", "--optimize_onnx", **FLAG, help="fuse the models")
    add("--use_gpu", **FLAG, help="run on a GPU")
    precisions = [Precision.FLOAT32.value, Precision.FLOAT16.value]
    add("-p", "--precision", default=Precision.FLOAT32.value, choices=precisions, help="of the weights")
    add("--verbose", **FLAG)
    add("-e", "--use_external_data_format", **FLAG, help="write weights beside the models")
    add("-s", "--use_decoder_start_token", **FLAG, help="with --encoder_decoder_init: no input decoder_input_ids")
    add("-w", "--overwrite", **FLAG, help="export again where files are there")
    add("--disable_auto_mixed_precision", **FLAG, help="convert everything to float16")
    add("--force_fp16_io", **FLAG, help="inputs and outputs of a float16 model are float16, too")
    add("--use_int64_inputs", **FLAG, help="int64 for tokens and masks; int32 without")
    add("--state_dict_path", default="", help="a file of torch with other weights")
    add("--encoder_decoder_init", **FLAG, help="let the encoder's file have the decoder's first step, the older form")
    return parser.parse_args(argv)


def export_onnx_models(
    model_name_or_path: str,
    cache_dir: str,
    output_dir: str | Path,
    use_gpu: bool = False,
    use_external_data_format: bool = False,
    optimize_onnx: bool = False,
    precision: str = Precision.FLOAT32.value,
    verbose: bool = False,
    use_decoder_start_token: bool = False,
    overwrite: bool = False,
    disable_auto_mixed_precision: bool = False,
    use_int32_inputs: bool = True,
    model_type: str = "t5",
    state_dict_path: str = "",
    encoder_decoder_init: bool = False,
    force_fp16_io: bool = False,
    shape_infer_before_optimization: bool = False,
) -> list[str]:
    """Write both parts, compare each with torch, and return their paths: the encoder's first.

    Args:
        model_name_or_path: a folder, or a name on the hub.
        cache_dir: where models of the hub are kept.
        output_dir: the folder of the files.
        use_gpu: run on a GPU.
        use_external_data_format: write weights beside the models.
        optimize_onnx: fuse them; the files' names end with the precision then.
        precision: ``"fp32"`` or ``"fp16"``.
        verbose: log more.
        use_decoder_start_token: with ``encoder_decoder_init``, no input ``decoder_input_ids``.
        overwrite: export again where files are there.
        disable_auto_mixed_precision: convert everything to float16.
        use_int32_inputs: int32 for tokens and masks; else int64.
        model_type: ``"t5"`` or ``"mt5"``.
        state_dict_path: a file of torch with other weights.
        encoder_decoder_init: let the encoder's file have the decoder's first step.
        force_fp16_io: inputs and outputs of a float16 model are float16, too.
        shape_infer_before_optimization: infer shapes first, into files of their own.

    Raises:
        ValueError: the precision or type is not known.
        ModuleNotFoundError: torch or transformers is not installed.
    """
    if precision not in (Precision.FLOAT32.value, Precision.FLOAT16.value):
        raise ValueError(f"precision {precision!r} is not known; known are fp32 and fp16")
    torch = importlib.import_module("torch")
    helper = importlib.import_module("ort_transformers.models.t5.t5_helper").T5Helper
    device = torch.device("cuda:0" if use_gpu else "cpu")
    parts = helper.load_model(
        model_name_or_path, cache_dir, device, model_type, state_dict_path, encoder_decoder_init=encoder_decoder_init
    )
    config = parts["decoder"].config
    if config.num_layers > _MAX_LAYERS_IN_ONE_FILE and not use_external_data_format:
        log.info("a model above 2 GB needs --use_external_data_format")
    paths = []
    for name, part in parts.items():

        def place(suffix: str, name: str = name) -> str:
            return str(helper.get_onnx_path(str(output_dir), model_name_or_path, suffix=f"_{name}{suffix}"))

        path = place("")
        if overwrite or not Path(path).exists():
            helper.export_onnx(
                part, device, path, verbose, use_external_data_format, not use_decoder_start_token, use_int32_inputs
            )
        else:
            log.info("%s is there already and is taken as it is", path)
        if optimize_onnx or precision == Precision.FLOAT16.value:
            source, path = path, place(f"_{precision}")
            if shape_infer_before_optimization:
                infer_shapes_path(source, place("_shape"))
                source = place("_shape")
            if overwrite or not Path(path).exists():
                helper.optimize_onnx(
                    source, path, precision == Precision.FLOAT16.value, config.num_heads, config.hidden_size,
                    use_external_data_format, not disable_auto_mixed_precision, use_gpu, force_fp16_io,
                )  # fmt: skip
        session = create_onnxruntime_session(path, use_gpu=use_gpu, verbose=verbose)
        if session is None:
            break
        most = helper.verify_onnx(part, session, device, use_int32_inputs)
        log.info("%s: results differ from torch's by up to %.3g", path, most)
        if precision == Precision.FLOAT32.value and most > _CLOSE:
            log.warning("%s: results are not close to torch's", path)
        paths.append(path)
    return paths


def main(argv: Sequence[str] | None = None) -> None:
    """Convert the model that the command line names.

    Raises:
        ValueError: the precision cannot be had that way.
        ModuleNotFoundError: torch or transformers is not installed.
    """
    args = parse_arguments(argv)
    setup_logger(args.verbose)
    if args.precision == Precision.FLOAT16.value and not (args.optimize_onnx and args.use_gpu):
        raise ValueError(
            "--precision fp16 needs --optimize_onnx and --use_gpu; export_onnx_models() converts for a CPU, too"
        )
    folder = os.path.dirname(args.output) if args.output.endswith(".onnx") else args.output
    prepare_environment(args.cache_dir, folder, args.use_gpu)
    paths = export_onnx_models(
        args.model_name_or_path, args.cache_dir, folder, args.use_gpu, args.use_external_data_format,
        args.optimize_onnx, args.precision, args.verbose, args.use_decoder_start_token, args.overwrite,
        args.disable_auto_mixed_precision, not args.use_int64_inputs, args.model_type, args.state_dict_path,
        args.encoder_decoder_init, args.force_fp16_io,
    )  # fmt: skip
    log.info("written: %s", ", ".join(paths))


if __name__ == "__main__":
    run_program(main)
