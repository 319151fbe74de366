"""Gpt2Helper: exports a GPT-2 with caches, optimizes it, runs it, and compares the results with torch's."""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ort_core
from ort_transformers.benchmark_helper import Precision
from ort_transformers.fusion_options import FusionOptions
from ort_transformers.io_binding_helper import IOBindingHelper
from ort_transformers.models.comparisons import as_array, largest_difference
from ort_transformers.models.gpt2.gpt2_inputs import Gpt2Inputs, padding_mask, positions_of
from ort_transformers.models.gpt2.gpt2_modules import (
    MODEL_CLASSES,
    GPT2ModelNoPastState,
    MyGPT2LMHeadModel,
    MyGPT2LMHeadModel_NoPadding,
    MyGPT2Model,
)
from ort_transformers.models.gpt2.names import PRETRAINED_GPT2_MODELS
from ort_transformers.models.mixed_precision import auto_mixed_precision
from ort_transformers.models.torch_export import Shape, Signature, eager_attention, export_torch
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.optimizer import optimize_model

__all__ = [
    "DEFAULT_TOLERANCE", "MODEL_CLASSES", "PRETRAINED_GPT2_MODELS", "GPT2ModelNoPastState", "Gpt2Helper", "Gpt2Inputs",
    "MyGPT2LMHeadModel", "MyGPT2LMHeadModel_NoPadding", "MyGPT2Model",
]  # fmt: skip

log = logging.getLogger(__name__)

Tensor = Any  # torch's, as modules, configurations and devices
Session = ort_core.InferenceSession
DEFAULT_TOLERANCE = {Precision.FLOAT32: 0.0005, Precision.FLOAT16: 0.2, Precision.INT8: 3.0}
_IN_FLOAT32 = ("Add", "LayerNormalization", "SkipLayerNormalization", "FastGelu", "EmbedLayerNormalization")
_KINDS = ("raw", "fp32", "fp16", "int8")
_PERCENTILES = (50, 90, 95, 99)


class Gpt2Helper:
    """What the conversion of a GPT-2 is made of."""

    @staticmethod
    def get_dummy_inputs(
        batch_size: int,
        past_sequence_length: int,
        sequence_length: int,
        num_attention_heads: int,
        hidden_size: int,
        num_layer: int,
        vocab_size: int,
        device: Any,
        float16: bool = False,
        has_position_ids: bool = True,
        has_attention_mask: bool = True,
        input_ids_dtype: Any = torch.int32,
        position_ids_dtype: Any = torch.int32,
        attention_mask_dtype: Any = torch.int32,
        left_side_padding: bool = True,
    ) -> Gpt2Inputs:
        """Return random tokens, their mask and positions, and caches between -1 and 1."""
        dtype = torch.float16 if float16 else torch.float32
        head_size = hidden_size // num_attention_heads
        shape = (2, batch_size, num_attention_heads, past_sequence_length, head_size)
        past = [torch.rand(shape, dtype=dtype, device=device) * 2 - 1 for _ in range(num_layer)]
        tokens = (batch_size, sequence_length)
        input_ids = torch.randint(0, vocab_size - 1, tokens, dtype=input_ids_dtype, device=device)
        length = past_sequence_length + sequence_length
        mask = padding_mask(batch_size, length, left=left_side_padding, dtype=attention_mask_dtype, device=device)
        places = positions_of(mask, past_sequence_length, position_ids_dtype)
        return Gpt2Inputs(
            input_ids, places if has_position_ids else None, mask if has_attention_mask else None, past
        )  # fmt: skip

    @staticmethod
    def get_output_shapes(
        batch_size: int,
        past_sequence_length: int,
        sequence_length: int,
        config: Any,
        model_class: str = "GPT2LMHeadModel",
    ) -> dict[str, list[int]]:
        """Return the shape of each output, by name."""
        name = MODEL_CLASSES[model_class][1]
        width = config.vocab_size if name == "logits" else config.hidden_size
        heads = config.num_attention_heads
        total = past_sequence_length + sequence_length
        present = [2, batch_size, heads, total, config.hidden_size // heads]
        shapes = {name: [batch_size, sequence_length, width]}
        return shapes | {f"present_{layer}": list(present) for layer in range(config.num_hidden_layers)}

    @staticmethod
    def auto_increase_buffer_size(
        output_buffers: MutableMapping[str, Tensor], output_shapes: Mapping[str, Shape]
    ) -> None:
        """Replace buffers that are smaller than what they shall hold."""
        for name, shape in output_shapes.items():
            buffer, size = output_buffers[name], prod(int(each) for each in shape)
            if size > buffer.nelement():
                output_buffers[name] = torch.empty(size, dtype=buffer.dtype, device=buffer.device)

    @staticmethod
    def get_output_buffers(
        output_shapes: Mapping[str, Shape], device: Any, is_float16: bool = False
    ) -> dict[str, Tensor]:
        """Return a flat tensor for each output, as large as its shape says."""
        dtype = torch.float16 if is_float16 else torch.float32
        sizes = {name: prod(int(each) for each in shape) for name, shape in output_shapes.items()}
        return {name: torch.empty(size, dtype=dtype, device=device) for name, size in sizes.items()}

    @staticmethod
    def diff_outputs(torch_outputs: Sequence[Any], ort_outputs: Sequence[np.ndarray], relative: bool = False) -> float:
        """Return how far the first outputs lie apart at most."""
        wanted = as_array(torch_outputs[0])
        apart = np.abs(wanted - ort_outputs[0])
        return float((apart / (np.abs(wanted) + 1e-6) if relative else apart).max())

    @staticmethod
    def compare_outputs(
        torch_outputs: Sequence[Any],
        ort_outputs: Sequence[np.ndarray],
        rtol: float = 1e-03,
        atol: float = 1e-03,
        **kwargs: Any,
    ) -> bool:
        """Return whether all outputs are close; ``kwargs`` is for helpers with more arguments."""
        wanted = [as_array(each) for each in (torch_outputs[0], *torch_outputs[1])]
        pairs = zip(wanted, ort_outputs, strict=False)
        is_close = all(np.allclose(found, expected, rtol=rtol, atol=atol) for expected, found in pairs)
        if not is_close:
            log.info("results differ from torch's by up to %.5f", largest_difference(wanted, ort_outputs))
        return is_close

    @staticmethod
    def compare_outputs_v2(
        torch_outputs: Sequence[Any], ort_outputs: Sequence[np.ndarray], atol: float = 1e-06
    ) -> tuple[bool, float, int, list[str], bool]:
        """Compare all outputs.

        Returns:
            Whether all are close, the largest difference, the output that has it, a text for each output, and whether
            the largest number of the first output stands in the same place.
        """
        wanted = [as_array(each) for each in (torch_outputs[0], *torch_outputs[1])][: len(ort_outputs)]
        apart = [np.abs(expected - found) for expected, found in zip(wanted, ort_outputs, strict=True)]
        most = [float(each.max()) for each in apart]
        texts = []
        for expected, found, each in zip(wanted, ort_outputs, apart, strict=True):
            place = np.unravel_index(each.argmax(), each.shape)
            at = tuple(map(int, place))
            texts.append(f"diff={each[place]:.9f} index={at} ort={found[place]:.9f} torch={expected[place]:.9f}")
        is_close = all(
            np.allclose(found, each, atol=atol, rtol=0) for each, found in zip(wanted, ort_outputs, strict=True)
        )
        same_top = int(np.argmax(wanted[0])) == int(np.argmax(ort_outputs[0]))
        return is_close, max(most), most.index(max(most)), texts, same_top

    @staticmethod
    def export_onnx(
        model: Any,
        device: Any,
        onnx_model_path: str,
        verbose: bool = False,
        use_external_data_format: bool = False,
        has_position_ids: bool = True,
        has_attention_mask: bool = True,
        input_ids_dtype: Any = torch.int32,
        position_ids_dtype: Any = torch.int32,
        attention_mask_dtype: Any = torch.int32,
    ) -> None:
        """Write a model with the inputs input_ids, position_ids, attention_mask and past_0, past_1, ...

        Its outputs are logits, or last_state of a model without a head, and present_0, present_1, ...
        """
        config = model.config
        dummy = Gpt2Helper.get_dummy_inputs(
            2, 3, 2, config.num_attention_heads, config.hidden_size, config.n_layer, config.vocab_size, device,
            has_position_ids=has_position_ids, has_attention_mask=has_attention_mask, input_ids_dtype=input_ids_dtype,
            position_ids_dtype=position_ids_dtype, attention_mask_dtype=attention_mask_dtype,
        )  # fmt: skip
        inputs: dict[str, Shape] = {"input_ids": ("batch_size", "seq_len")}
        if has_position_ids:
            inputs["position_ids"] = ("batch_size", "seq_len")
        if has_attention_mask:
            inputs["attention_mask"] = ("batch_size", "total_seq_len")
        heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
        layers = range(config.n_layer)
        inputs |= {f"past_{layer}": (2, "batch_size", heads, "past_seq_len", size) for layer in layers}
        has_head = isinstance(model, MyGPT2LMHeadModel | MyGPT2LMHeadModel_NoPadding)
        width = config.vocab_size if has_head else config.hidden_size
        outputs: dict[str, Shape] = {"logits" if has_head else "last_state": ("batch_size", "seq_len", width)}
        outputs |= {f"present_{layer}": (2, "batch_size", heads, "total_seq_len", size) for layer in layers}
        export_torch(
            model, dummy.to_list(), onnx_model_path, Signature(inputs, outputs),
            use_external_data_format=use_external_data_format, verbose=verbose,
        )  # fmt: skip

    @staticmethod
    def optimize_onnx(
        onnx_model_path: str,
        optimized_model_path: str,
        is_float16: bool,
        num_attention_heads: int,
        hidden_size: int,
        use_external_data_format: bool = False,
        auto_mixed_precision: bool = False,
        stage: int = 0,
        **kwargs: Any,
    ) -> OnnxModel:
        """Fuse a model, convert it to float16 if that is asked for, and write it; ``stage`` changes nothing."""
        optimized = optimize_model(
            onnx_model_path, "gpt2", num_attention_heads, hidden_size, FusionOptions("gpt2"), opt_level=0
        )
        if is_float16 and auto_mixed_precision:
            Gpt2Helper.auto_mixed_precision(optimized)
        elif is_float16:
            optimized.convert_float_to_float16(**{"keep_io_types": False, **kwargs})
        optimized.save_model_to_file(optimized_model_path, use_external_data_format)
        return optimized

    @staticmethod
    def auto_mixed_precision(onnx_model: OnnxModel, op_block_list: Iterable[str] = _IN_FLOAT32) -> dict[str, Any]:
        """Convert a model to float16 in place, but for operators that lose much by it; return the arguments."""
        return auto_mixed_precision(onnx_model, op_block_list)

    @staticmethod
    def pytorch_inference(model: Any, inputs: Gpt2Inputs, total_runs: int = 0) -> Any:
        """Return torch's outputs; with ``total_runs`` the mean of their milliseconds, too.

        Attention is computed as in the export: other forms give other numbers at places that padding hides wholly.
        """
        given = inputs.to_fp32().to_list()
        with torch.no_grad(), eager_attention(model):
            return _timed(lambda: model(*given), total_runs)

    @staticmethod
    def onnxruntime_inference(ort_session: Session, inputs: Gpt2Inputs, total_runs: int = 0) -> Any:
        """Return a session's outputs; with ``total_runs`` the mean of their milliseconds, too."""
        feeds = feeds_of(inputs)
        return _timed(lambda: ort_session.run(None, feeds), total_runs)

    @staticmethod
    def prepare_io_binding(
        ort_session: Session,
        input_ids: Tensor,
        position_ids: Tensor | None,
        attention_mask: Tensor | None,
        past: Sequence[Tensor],
        output_buffers: Mapping[str, Tensor],
        output_shapes: Mapping[str, Sequence[int]],
    ) -> Any:
        """Return a binding of tensors of torch to a session."""
        return IOBindingHelper.prepare_io_binding(
            ort_session, input_ids, position_ids, attention_mask, past, output_buffers, output_shapes
        )

    @staticmethod
    def get_outputs_from_io_binding_buffer(
        ort_session: Session,
        output_buffers: Mapping[str, Tensor],
        output_shapes: Mapping[str, Sequence[int]],
        return_numpy: bool = True,
    ) -> list[Any]:
        """Return the outputs, copied out of their buffers."""
        return IOBindingHelper.get_outputs_from_io_binding_buffer(
            ort_session, output_buffers, output_shapes, return_numpy
        )

    @staticmethod
    def onnxruntime_inference_with_binded_io(
        ort_session: Session,
        inputs: Gpt2Inputs,
        output_buffers: Mapping[str, Tensor],
        output_shapes: Mapping[str, Sequence[int]],
        total_runs: int = 0,
        return_numpy: bool = True,
        include_copy_output_latency: bool = False,
    ) -> Any:
        """Return a session's outputs in buffers of torch; with ``total_runs`` the mean of their milliseconds, too."""
        binding = Gpt2Helper.prepare_io_binding(
            ort_session, inputs.input_ids, inputs.position_ids, inputs.attention_mask, inputs.past, output_buffers,
            output_shapes,
        )  # fmt: skip

        def copied() -> list[Any]:
            return Gpt2Helper.get_outputs_from_io_binding_buffer(
                ort_session, output_buffers, output_shapes, return_numpy
            )

        ort_session.run_with_iobinding(binding)
        outputs = copied()
        if not total_runs:
            return outputs
        begin = time.perf_counter()
        for _ in range(total_runs):
            ort_session.run_with_iobinding(binding)
            if include_copy_output_latency:
                copied()
        return outputs, (time.perf_counter() - begin) * 1e3 / total_runs

    @staticmethod
    def test_parity(
        ort_session: Session,
        model: Any,
        device: Any,
        is_float16: bool = False,
        rtol: float = 5e-4,
        atol: float = 5e-4,
        test_cases_per_run: int = 10000,
        total_runs: int = 1,
        use_io_binding: bool = True,
        model_class: str = "GPT2LMHeadModel",
        has_position_ids: bool = True,
        has_attention_mask: bool = True,
        input_ids_dtype: Any = torch.int32,
        position_ids_dtype: Any = torch.int32,
        attention_mask_dtype: Any = torch.int32,
        stage: int = 0,
        verbose: bool = False,
        enable_pickle_output: bool = False,
    ) -> dict[str, Any]:
        """Compare a session with torch on random inputs of batches up to 8, pasts up to 4 and one or two tokens.

        Args:
            ort_session: the session.
            model: the model that was exported.
            device: torch's.
            is_float16: the caches are float16.
            rtol: ignored, as in onnxruntime.
            atol: what results may differ.
            test_cases_per_run: how many comparisons a run has.
            total_runs: how many runs.
            use_io_binding: ignored: numbers do not depend on it.
            model_class: which of ``MODEL_CLASSES`` the model is.
            has_position_ids: whether it has that input.
            has_attention_mask: whether it has that input.
            input_ids_dtype: their element type.
            position_ids_dtype: their element type.
            attention_mask_dtype: its element type.
            stage: 1 for first calls alone, whose past is empty.
            verbose: log each comparison that fails.
            enable_pickle_output: not available.

        Returns:
            Percentiles of the differences and rates of comparisons that passed, by onnxruntime's names.

        Raises:
            ValueError: ``enable_pickle_output`` is asked for.
        """
        if enable_pickle_output:
            raise ValueError("enable_pickle_output is not available: take compare_outputs_v2 on inputs of your own")
        config = model.config
        apart: list[float] = []
        tops, passed = [0] * total_runs, 0
        total = test_cases_per_run * total_runs
        for case in range(total):
            dummy = Gpt2Helper.get_dummy_inputs(
                random.randint(1, 8), 0 if stage == 1 else random.randint(0, 4), random.randint(1, 2),
                config.num_attention_heads, config.hidden_size, config.n_layer, config.vocab_size, device, is_float16,
                has_position_ids, has_attention_mask, input_ids_dtype, position_ids_dtype, attention_mask_dtype,
            )  # fmt: skip
            wanted = Gpt2Helper.pytorch_inference(model, dummy)
            found = Gpt2Helper.onnxruntime_inference(ort_session, dummy)
            is_close, most, _, texts, same_top = Gpt2Helper.compare_outputs_v2(wanted, found, atol)
            apart += [] if np.isnan(most) else [most]
            passed += is_close
            tops[case // test_cases_per_run] += same_top
            if verbose and not is_close:
                log.info("comparison %d fails: %s", case, "; ".join(texts))
        log.info("comparisons with torch: %d of %d passed", passed, total)
        result: dict[str, Any] = {
            f"max_diff_percentile_{each}": f"{np.percentile(apart, each):.5f}" if apart else "nan"
            for each in _PERCENTILES
        }
        return result | {
            "top1_match_rate": sum(tops) / total,
            "top1_match_rate_per_run": [each / test_cases_per_run for each in tops],
            "diff_pass_rate": passed / total,
            "nan_rate": (total - len(apart)) / total,
        }

    @staticmethod
    def test_performance(
        ort_session: Session,
        model: Any,
        device: Any,
        is_float16: bool = False,
        total_runs: int = 100,
        use_io_binding: bool = True,
        model_class: str = "GPT2LMHeadModel",
        has_position_ids: bool = True,
        has_attention_mask: bool = True,
        input_ids_dtype: Any = torch.int32,
        position_ids_dtype: Any = torch.int32,
        attention_mask_dtype: Any = torch.int32,
        batch_size: int = 8,
        sequence_length: int = 1,
        past_sequence_length: int = 32,
    ) -> float:
        """Return the mean milliseconds of a run."""
        config = model.config
        dummy = Gpt2Helper.get_dummy_inputs(
            batch_size, past_sequence_length, sequence_length, config.num_attention_heads, config.hidden_size,
            config.n_layer, config.vocab_size, device, is_float16, has_position_ids, has_attention_mask,
            input_ids_dtype, position_ids_dtype, attention_mask_dtype,
        )  # fmt: skip
        if not use_io_binding:
            return Gpt2Helper.onnxruntime_inference(ort_session, dummy, total_runs)[1]
        shapes = Gpt2Helper.get_output_shapes(batch_size, past_sequence_length, sequence_length, config, model_class)
        buffers = Gpt2Helper.get_output_buffers(shapes, device, is_float16)
        return Gpt2Helper.onnxruntime_inference_with_binded_io(ort_session, dummy, buffers, shapes, total_runs)[1]

    @staticmethod
    def torchscript(
        model: Any, config: Any, device: Any, has_position_ids: bool = True, has_attention_mask: bool = True
    ) -> Any:
        """Return the model traced."""
        dummy = Gpt2Helper.get_dummy_inputs(
            1, 1, 1, config.num_attention_heads, config.hidden_size, config.n_layer, config.vocab_size, device,
            has_position_ids=has_position_ids, has_attention_mask=has_attention_mask,
        )  # fmt: skip
        return torch.jit.trace(model, dummy.to_list())

    @staticmethod
    def get_onnx_paths(
        output_dir: str,
        model_name_or_path: str,
        model_class: str = "GPT2LMHeadModel",
        has_past: bool = True,
        new_folder: bool = False,
        remove_existing: Sequence[str] = _KINDS,
    ) -> dict[str, str]:
        """Return where the files of the export and of each precision lie.

        Args:
            output_dir: the folder of all.
            model_name_or_path: a folder, whose last part counts, or a name.
            model_class: which of ``MODEL_CLASSES`` it is; others than the first stand in the name.
            has_past: whether the model has caches, which stands in the name, too.
            new_folder: whether each file gets a folder of its own.
            remove_existing: which of these folders are removed.
        """
        given = Path(model_name_or_path)
        name = given.name if given.is_dir() else model_name_or_path
        name += "" if model_class == "GPT2LMHeadModel" else f"_{model_class}"
        name += "_past" if has_past else ""
        names = {kind: name if kind == "raw" else f"{name}_{kind}" for kind in _KINDS}
        if not new_folder:
            return {kind: str(Path(output_dir, f"{each}.onnx")) for kind, each in names.items()}
        for kind in remove_existing:
            shutil.rmtree(Path(output_dir, names[kind]), ignore_errors=True)
        return {kind: str(Path(output_dir, each, f"{each}.onnx")) for kind, each in names.items()}


def feeds_of(inputs: Gpt2Inputs) -> dict[str, np.ndarray]:
    """Return the inputs as a session wants them."""
    given = {"input_ids": inputs.input_ids, "position_ids": inputs.position_ids}
    given |= {"attention_mask": inputs.attention_mask}
    given |= {f"past_{layer}": each for layer, each in enumerate(inputs.past or ())}
    return {name: as_array(each) for name, each in given.items() if each is not None}


def _timed(run: Callable[[], Any], total_runs: int) -> Any:
    outputs = run()
    if not total_runs:
        return outputs
    begin = time.perf_counter()
    for _ in range(total_runs):
        run()
    return outputs, (time.perf_counter() - begin) * 1e3 / total_runs
