"""Subclasses of the quantizers that vendors write: the same class on onnxruntime's and on ours writes the same file."""

from __future__ import annotations

import copy
import importlib

import numpy as np
import onnx
import pytest
from beside_onnxruntime import assert_same_model
from float_models import conv, gemm, matmul, tied_gemms
from onnx import TensorProto, numpy_helper
from static_models import STATIC

PACKAGES = {"ours": "ort_quantization", "theirs": "onnxruntime.quantization"}


def module(which: str, name: str):
    return importlib.import_module(f"{PACKAGES[which]}.{name}")


def ranges(which: str, model: onnx.ModelProto):
    """Ranges of all values, which both packages are given alike."""
    calibrate = module(which, "calibrate")
    shaped = onnx.shape_inference.infer_shapes(model)
    names = [each.name for each in (*shaped.graph.input, *shaped.graph.value_info, *shaped.graph.output)]
    ends = {name: (np.float32(-1 - 0.1 * place), np.float32(2 + 0.3 * place)) for place, name in enumerate(names)}
    return calibrate.TensorsData(calibrate.CalibrationMethod.MinMax, ends)


def quantizer(which: str, kind: type, model: onnx.ModelProto, *more: object, **options: object):
    common = (TensorProto.INT8, TensorProto.UINT8, ranges(which, model), [], [])
    kinds = list({**module(which, "registry").QLinearOpsRegistry, **module(which, "registry").QDQRegistry})
    shaped = module(which, "quant_utils").save_and_reload_model_with_shape_infer(copy.deepcopy(model))
    return kind(shaped, False, False, *more, *common, kinds, {"KeepFragileValues": False, **options})


def wider(which: str) -> type:
    """As vendors' classes do: scales are powers of two, biases and pairs are noted."""
    parameters = module(which, "base_quantizer").QuantizationParams

    class Wider(module(which, "qdq_quantizer").QDQQuantizer):
        def calc_quant_params(self, tensor_data, quant_overrides):
            found = super().calc_quant_params(tensor_data, quant_overrides)
            found["scale"] = np.asarray(2 ** np.ceil(np.log2(found["scale"])), np.float32)
            return parameters(zero_point=found["zero_point"], scale=found["scale"], quant_type=found["quant_type"])

        def calc_graph_quant_params(self):
            found = super().calc_graph_quant_params()
            self.seen = {name: float(each.original["scale"]) for name, each in found.items()}
            return found

        def quantize_bias_static(self, bias_name, bias_info):
            self.biases = [*getattr(self, "biases", []), (bias_name, bias_info.input_name, bias_info.weight_name)]
            return super().quantize_bias_static(bias_name, bias_info)

        def _add_qdq_pair_for_activation(self, tensor_name, scale_name, zp_name, data_type=None):
            self.pairs = [*getattr(self, "pairs", []), (tensor_name, scale_name, zp_name)]
            super()._add_qdq_pair_for_activation(tensor_name, scale_name, zp_name, data_type)

    return Wider


@pytest.mark.parametrize("name", ["conv", "gemm", "tied gemms", "residual network", "shared bias"])
def test_a_subclass_that_replaces_inner_steps_writes_the_same_file(tmp_path, name):
    made, paths = {}, {}
    for which in PACKAGES:
        made[which] = quantizer(which, wider(which), STATIC[name]())
        made[which].quantize_model()
        paths[which] = tmp_path / f"{which}.onnx"
        made[which].model.save_model_to_file(str(paths[which]))
    ours, theirs = made["ours"], made["theirs"]
    assert ours.seen == theirs.seen
    assert sorted(ours.biases) == sorted(theirs.biases)
    assert sorted(ours.pairs) == sorted(theirs.pairs)
    assert_same_model(paths["ours"], paths["theirs"])


def pairs_of_its_own(which: str) -> type:
    """Writes each weight as a whole pair by single calls, as classes for training with rounded weights do."""

    class Pairs(module(which, "qdq_quantizer").QDQQuantizer):
        def _add_qdq_nodes_for_initializer(self, weight_proto):
            name = weight_proto.name
            stored = self._make_scale_zp_initializers(name, self.initializer_quant_params[name])
            self.model.replace_input_of_all_nodes(name, name + "_rounded")
            names = stored.scale.name, stored.zero_point.name
            self._create_qdq_nodes(name, name + "_q", name + "_Q", name + "_q", name + "_rounded", name + "_D", *names)
            records = module(which, "quant_utils")
            kind = records.QuantizedValueType.Initializer
            value = records.QuantizedValue(name, name + "_q", *names, kind)
            self.quantized_value_map[name] = module(which, "qdq_quantizer").QDQTensorQuantizedValue(value, None, None)

    return Pairs


def test_a_subclass_may_write_nodes_by_single_calls(tmp_path):
    paths = {}
    for which in PACKAGES:
        made = quantizer(which, pairs_of_its_own(which), conv(), QuantizeBias=False)
        made.quantize_model()
        paths[which] = tmp_path / f"{which}.onnx"
        made.model.save_model_to_file(str(paths[which]))
    assert_same_model(*paths.values())
    assert sum(node.op_type == "QuantizeLinear" for node in onnx.load(paths["ours"]).graph.node) > 3


def arrays(which_quantizer, *names: str) -> list[np.ndarray]:
    return [numpy_helper.to_array(which_quantizer.model.get_initializer(name)) for name in names]


@pytest.mark.parametrize("kind", ["qdq", "operators"])
def test_steps_that_store_tensors_do_what_onnxruntimes_do(kind):
    found = {}
    for which in PACKAGES:
        if kind == "qdq":
            made = quantizer(which, module(which, "qdq_quantizer").QDQQuantizer, conv())
        else:
            mode = module(which, "quant_utils").QuantizationMode.QLinearOps
            made = quantizer(which, module(which, "onnx_quantizer").ONNXQuantizer, conv(), mode, True)
        weight = made.initializers["w"]
        whole = made.quantize_initializer_impl(weight, TensorProto.INT8)
        channels = made.quantize_weight_per_channel_impl("v", TensorProto.INT8, 0)
        scales = np.array(0.02, np.float32), np.array([0.01], np.float32)
        bias = made.quantize_bias_static_impl("b", *scales)
        found[which] = whole, channels, bias, arrays(made, *whole, *channels, *bias[:3])
    (ours, theirs) = found.values()
    assert ours[:2] == theirs[:2]
    assert (*ours[2][:3], *ours[2][4:]) == (*theirs[2][:3], *theirs[2][4:])
    np.testing.assert_array_equal(ours[2][3], theirs[2][3])
    for mine, other in zip(ours[3], theirs[3], strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("model", [conv, gemm, matmul, tied_gemms])
def test_calibrated_parameters_are_those_of_onnxruntime_by_each_class(model):
    for kind in ("qdq", "operators"):
        scales = {}
        for which in PACKAGES:
            if kind == "qdq":
                made = quantizer(which, module(which, "qdq_quantizer").QDQQuantizer, model())
                scales[which] = {name: float(each.original["scale"]) for name, each in made.quantization_params.items()}
            else:
                mode = module(which, "quant_utils").QuantizationMode.QLinearOps
                made = quantizer(which, module(which, "onnx_quantizer").ONNXQuantizer, model(), mode, True)
                scales[which] = {name: float(each["scale"]) for name, each in made.quantization_params.items()}
        assert scales["ours"] == pytest.approx(scales["theirs"], rel=1e-6)


def test_scales_of_weights_grow_for_a_bias_as_in_onnxruntime():
    bias = numpy_helper.from_array(np.array([5e4, 1.0, 0.0], np.float32), "b")
    for scale, is_by_channel in ((np.array(1e-9, np.float32), False), (np.full(3, 1e-9, np.float32), True)):
        found = {}
        for which in PACKAGES:
            made = quantizer(which, module(which, "qdq_quantizer").QDQQuantizer, conv())
            given = np.array(0.01, np.float32), scale.copy(), "w", bias, is_by_channel
            found[which] = made._adjust_weight_scale_for_int32_bias(*given)
        assert found["ours"][0] is found["theirs"][0] is True
        np.testing.assert_allclose(found["ours"][1], found["theirs"][1], rtol=1e-6)


@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.UINT8])
def test_parameters_that_are_found_at_run_time_have_onnxruntimes_names(kind):
    found = {}
    for which in PACKAGES:
        mode = module(which, "quant_utils").QuantizationMode.IntegerOps
        made = quantizer(which, module(which, "onnx_quantizer").ONNXQuantizer, matmul(), mode, False)
        nodes = []
        names = made._get_dynamic_input_quantization_params("x", nodes, kind, TensorProto.FLOAT)
        found[which] = names, [(node.op_type, node.input[0]) for node in nodes[:2]], nodes[-1].output[0]
        with pytest.raises(ValueError, match="Unexpected value for qType=9"):
            made._get_dynamic_input_quantization_params("x", [], TensorProto.BOOL, TensorProto.FLOAT)
    assert found["ours"] == found["theirs"]


def test_replacing_how_parameters_are_found_at_run_time_takes_effect():
    """A vendor's class gives constants in place of finding them."""
    for which in PACKAGES:

        class Given(module(which, "onnx_quantizer").ONNXQuantizer):
            def _get_dynamic_input_quantization_params_int8(self, input_name, nodes_list, initial_type):
                for name, value in (("own_scale", np.float32(0.1)), ("own_zero", np.int8(0))):
                    self.model.add_initializer(numpy_helper.from_array(np.array(value), name))
                return "own_scale", "own_zero", [], []

        mode = module(which, "quant_utils").QuantizationMode.IntegerOps
        common = (TensorProto.INT8, TensorProto.INT8, None, [], [], ["MatMul"], {})
        shaped = module(which, "quant_utils").save_and_reload_model_with_shape_infer(matmul())
        nodes = Given(shaped, False, False, mode, False, *common).quantize_model().graph.node
        read = [tuple(node.input[1:]) for node in nodes if node.op_type == "QuantizeLinear"]
        assert set(read) == {("own_scale", "own_zero")}
