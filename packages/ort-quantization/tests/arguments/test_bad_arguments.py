"""Arguments that nothing can be made of are refused in a sentence, and before the work whose result they would lose."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from float_models import conv, feeds_of, matmul

from ort_quantization import quant_pre_process, quantize_dynamic, quantize_static
from ort_quantization.errors import InvalidQuantization
from ort_quantization.half_files import convert_file
from ort_quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from ort_quantization.quantize_to_target import quantize_to_target
from ort_quantization.quantize_weights import quantize_weights

X = np.ones((1, 3, 11, 11), np.float32)


class Never:
    """A reader that nobody may ask for a sample."""

    def get_next(self):
        raise AssertionError("samples were read before the place of the model was looked at")


WRITERS = {
    "dynamic": quantize_dynamic,
    "static": lambda source, target: quantize_static(source, target, Never()),
    "weights": quantize_weights,
    "half": convert_file,
    "prepare": quant_pre_process,
    "target": lambda source, target: quantize_to_target(source, target, [{"x": X}], min_decibels=20),
}


@pytest.mark.parametrize("way", WRITERS)
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("folder", "folder is a folder"),
        ("file/small.onnx", "file is no folder"),
        (None, "expected, not NoneType"),
        ("", "not an empty text"),
    ],
)
def test_a_model_that_cannot_be_written_is_refused_before_the_work(tmp_path, way, place, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    onnx.save(conv(), tmp_path / "float.onnx")
    target = tmp_path / place if place else place
    if way == "prepare" and place is None:
        message = "needs an input model"
    with pytest.raises(InvalidQuantization, match=message):
        WRITERS[way](tmp_path / "float.onnx", target)


@pytest.mark.parametrize("way", WRITERS)
@pytest.mark.parametrize(("source", "message"), [(b"model", "not bytes; onnx.load_model"), ("folder", "is a folder")])
def test_what_is_no_model_is_refused_by_all(tmp_path, way, source, message):
    (tmp_path / "folder").mkdir()
    given = tmp_path / source if isinstance(source, str) else source
    with pytest.raises(InvalidQuantization, match=message):
        WRITERS[way](given, tmp_path / "small.onnx")


@pytest.mark.parametrize("way", ["dynamic", "weights", "half", "prepare"])
def test_a_model_in_memory_is_taken_and_left_as_it_was(tmp_path, way):
    model = matmul()
    before = model.SerializeToString(deterministic=True)
    WRITERS[way](model, tmp_path / "small.onnx")
    assert (tmp_path / "small.onnx").is_file()
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MatMulNBitsQuantizer(matmul(), accuracy_level=7), "accuracy_level is 7; MatMulNBits has 0 to 4"),
        (lambda: DefaultWeightOnlyQuantConfig(quant_axes="MatMul"), "pairs of an operator and an axis"),
    ],
)
def test_settings_of_weights_alone_are_refused_in_a_sentence(make, message):
    with pytest.raises(InvalidQuantization, match=message):
        make()


def test_a_metric_that_gives_no_number_is_told(tmp_path):
    onnx.save(matmul(), tmp_path / "float.onnx")
    feeds = [feeds_of(matmul())]
    with pytest.raises(InvalidQuantization, match="a metric gives a number; found NoneType"):
        quantize_to_target(
            tmp_path / "float.onnx", tmp_path / "small.onnx", feeds, metric=lambda session: None, allowed_loss=0.1
        )
