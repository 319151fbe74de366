"""``ort profile``: rates and ceilings of regions, the page, and what providers measure."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ort_core.cli.measuring.bench_roofline import fewer_threads, summarize_steps
from ort_core.cli.measuring.profile_report import first_name, summarize_trace
from ort_core.cli.pages.graph_page import region_times_ms
from ort_core.cli.pages.profile_page import kind_of, profile_page
from ort_core.cpu.inspection.roofline import MOST_NBYTES, SIZES, sizes_of
from ort_core.cpu.provider import CpuExecutionProvider
from ort_core.plugin import Bandwidth, Roofline, ThreadOptions

CEILINGS = Roofline(2, 100e9, (Bandwidth(1 << 20, 50e9), Bandwidth(1 << 30, 10e9)), {"int8": 400e9})


def event(name: str, ns: int, **work: object) -> dict[str, object]:
    args = {
        "op_name": "MatMul",
        "provider": "P",
        "node_index": name,
        "output_type_shape": [],
        "duration_ns": ns,
        **work,
    }
    return {"cat": "Node", "tid": 1, "ts": 0, "dur": ns // 1000, "name": f"{name}_kernel_time", "args": args}


def summary(tmp_path, *events):
    (tmp_path / "t.json").write_text(json.dumps(events))
    return summarize_trace(tmp_path / "t.json", 1, [10**7], {"P": CEILINGS})


@pytest.fixture
def products(tmp_path):
    """A model of one product and one activation, and its path."""
    weights = numpy_helper.from_array(np.ones((64, 48), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "product"), helper.make_node("Tanh", ["a"], ["y"], "tanh")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [32, 48])
    graph = helper.make_graph(nodes, "products", [x], [y], [weights])
    path = tmp_path / "products.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def test_region_that_computes_is_held_against_the_operations_per_second(tmp_path):
    row = summary(tmp_path, event("a", 1_000_000, flops=50_000_000, bytes=1000))["nodes"][0]
    assert row["gflops_per_s"] == pytest.approx(50)
    assert (row["bound"], row["ceiling_share"]) == ("compute", pytest.approx(0.5))


def test_region_that_moves_data_is_held_against_the_bandwidth_of_its_size(tmp_path):
    small, large = (event(n, 1_000_000, flops=1, bytes=b) for n, b in (("a", 1 << 20), ("b", 1 << 22)))
    rows = {row["name"]: row for row in summary(tmp_path, small, large)["nodes"]}
    assert rows["a"]["ceiling_share"] == pytest.approx((1 << 20) / 50e9 / 1e-3)
    assert rows["b"]["ceiling_share"] == pytest.approx((1 << 22) / 10e9 / 1e-3)
    assert rows["a"]["bound"] == rows["b"]["bound"] == "memory"


def test_region_of_unknown_work_has_no_rates(tmp_path):
    assert "gflops_per_s" not in summary(tmp_path, event("a", 1000))["nodes"][0]
    row = summary(tmp_path, event("a", 1000, flops=10, bytes=None))["nodes"][0]
    assert row["gbytes_per_s"] is None


def test_region_whose_sizes_grow_is_held_against_the_work_of_all_its_runs(tmp_path):
    sizes = [{"float": [rows, 8]} for rows in (4, 8, 16)]
    events = [
        event("a", 1_000_000, flops=8 * 10**6 * size["float"][0], bytes=1000, output_type_shape=[size],
              output_size=str(32 * size["float"][0]))
        for size in sizes
    ]  # fmt: skip
    row = summary(tmp_path, *events)["nodes"][0]
    assert row["gflops_per_s"] == pytest.approx(8 * (4 + 8 + 16) / 3)
    assert row["output"] == "float[4, 8] … float[16, 8]"


def test_region_whose_work_is_not_known_in_each_run_has_no_rates(tmp_path):
    events = [event("a", 1000, flops=flops, bytes=8) for flops in (10, None)]
    assert "gflops_per_s" not in summary(tmp_path, *events)["nodes"][0]


def test_region_is_held_against_the_ceiling_of_its_arithmetic(tmp_path):
    work = {"flops": 50_000_000, "bytes": 1000}
    events = [event(kind, 1_000_000, arithmetic=kind, **work) for kind in ("int8", "float64", "float32")]
    rows = {row["name"]: row for row in summary(tmp_path, *events)["nodes"]}
    assert rows["int8"]["ceiling_share"] == pytest.approx(0.125)
    assert rows["float32"]["ceiling_share"] == pytest.approx(0.5)
    assert "ceiling_share" not in rows["float64"], "nobody measured it"


def test_steps_of_one_node_are_rows_of_their_own_and_their_times_add_up_on_the_graph(tmp_path):
    events = [event("a", ns, flops=0, bytes=8, step=step) for step, ns in (("0.1", 1000), ("0.2", 3000)) for _ in "xx"]
    rows = {row["step"]: row["ms"] for row in summary(tmp_path, *events)["nodes"]}
    assert rows == {"0.1": pytest.approx(0.002), "0.2": pytest.approx(0.006)}
    assert region_times_ms(tmp_path / "t.json") == {"a": pytest.approx(0.004)}


def test_ceilings_are_measured_once_in_a_process():
    first, second = (CpuExecutionProvider().measure_roofline(ThreadOptions(1)) for _ in range(2))
    assert first is not None
    assert first is second
    assert {"float32", "float64"} <= set(first.by_kind)
    assert all(rate > 0 for rate in first.by_kind.values())


def test_fused_product_reports_the_operations_and_bytes_of_its_sizes(ort, products):
    data = ort("profile", products, "--json", "--threads", "1").data
    row = next(row for row in data["nodes"] if "MatMul" in row["operator"])
    assert row["flops"] == 2 * 32 * 48 * 64
    assert (row["arithmetic"], row["step"]) == ("float32", "0.0")
    least = 4 * (32 * 64 + 64 * 48 + 32 * 48)
    assert least <= row["nbytes"] <= 2 * least, "weights are packed in panels, which may be wider than the matrix"
    assert 0 < row["ceiling_share"] < 2
    assert data["ceilings"]["CPUExecutionProvider"]["num_threads"] == 1


def test_sequences_are_told_by_how_many_values_they_hold(ort, tmp_path):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[5, 2] x) => (float[A, 2] y) {
        [parts] s = SplitToSequence (x)
        [whole] y = ConcatFromSequence <axis = 0> (s)
    }""")
    onnx.save(model, tmp_path / "sequences.onnx")
    data = ort("profile", tmp_path / "sequences.onnx", "--json", "--threads", "1").data
    assert {row["name"]: row["output"] for row in data["nodes"]} == {"parts": "sequence of 5", "whole": "float[5, 2]"}


def test_steps_are_ranked_by_what_they_lose_and_unknown_ones_lose_nothing(tmp_path):
    events = [
        event("near", 4_000_000, flops=380_000_000, bytes=1000),  # 3.8 ms at 100 GFLOP/s
        event("far", 1_000_000, flops=20_000_000, bytes=1000),  # 0.2 ms
        event("unknown", 3_000_000),
    ]
    found = summarize_steps(summary(tmp_path, *events)["nodes"], p50_ms=8.75)
    assert [(step["name"], pytest.approx(step["lost_ms"])) for step in found["steps"]] == [
        ("far", 0.8), ("near", 0.2), ("unknown", 0.0),
    ]  # fmt: skip
    assert found["least_ms"] == pytest.approx(7)
    assert found["share"] == pytest.approx(0.8)
    assert (found["unknown_ms"], found["unknown_steps"]) == (pytest.approx(3), 1)


def test_bench_shows_the_machine_and_the_least_time_of_a_model(ort, products):
    common = ("bench", products, "-n", "3", "--threads", "2", "--roofline")
    data = ort(*common, "--json").data["roofline"]
    machine = data["ceilings"]["CPUExecutionProvider"]
    assert [each["num_threads"] for each in machine] == [1, 2]
    product = next(step for step in data["steps"] if "MatMul" in step["operator"])
    assert 0 < product["least_ms"] <= product["ms"]
    assert data["least_ms"] == pytest.approx(sum(step["least_ms"] for step in data["steps"]))
    shown = ort(*common).out
    assert "of what this machine can do" in shown
    assert "float32 GFLOP/s" in shown


def test_bench_measures_one_engine_under_the_roofline(ort, products):
    result = ort("bench", products, "--roofline", "--against", "onnxruntime")
    assert result.code == 2
    assert "--against" in result.err


def test_many_threads_read_no_more_memory_than_a_machine_can_spare():
    for count in (1, 2, 16, 17, 64, 256, 1024):
        sizes = sizes_of(count)
        assert sizes == sorted(set(sizes))
        assert sizes[-1] * count <= max(MOST_NBYTES, SIZES[-1])
    assert sizes_of(2) == list(SIZES)
    assert [fewer_threads(count) for count in (1, 2, 6, 8)] == [[], [1], [1, 2, 4], [1, 2, 4]]


def test_processor_computes_faster_than_it_reads_and_small_data_faster_than_large():
    ceilings = CpuExecutionProvider().measure_roofline(ThreadOptions(1))
    assert ceilings is not None
    small, large = ceilings.bandwidths[0], ceilings.bandwidths[-1]
    assert small.nbytes < large.nbytes
    assert ceilings.flops_per_s > 1e9
    assert small.bytes_per_s > large.bytes_per_s > 1e8


class Tags(HTMLParser):
    """Counts the tags of a page and collects what it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        self.fetched += [value for key, value in attrs if key in ("src", "href")]


def test_page_has_every_region_in_the_strip_the_roofline_and_the_table_and_fetches_nothing(ort, products, tmp_path):
    page = tmp_path / "p.html"
    result = ort("profile", products, "--html", page, "--json")
    assert result.code == 0, result.err
    tags = Tags()
    tags.feed(page.read_text(encoding="utf-8"))
    regions = len(result.data["nodes"])
    assert tags.found.count("rect") == regions
    assert tags.found.count("tr") == regions + 1
    assert tags.found.count("circle") == sum(
        1 for row in result.data["nodes"] if row.get("flops") and row.get("nbytes")
    )
    assert tags.found.count("circle") > 0
    assert not tags.fetched


def test_table_names_a_fused_region_by_its_first_node_and_others_whole():
    fused = {"name": "/layer/MatMul+/layer/Gelu", "operator": "MatMul+Gelu"}
    assert first_name(fused) == "/layer/MatMul+…"
    assert first_name({"name": "a+b", "operator": "MatMul"}) == "a+b"
    assert first_name({"name": "MatMul+Gelu", "share": 0.5}) == "MatMul+Gelu", "a row of operators"


def test_page_shows_names_as_text_whatever_they_hold(tmp_path):
    report = summary(tmp_path, event("<script>alert(1)</script>", 1000, flops=10, bytes=10))
    page = profile_page({"model": "<b>.onnx", **report})
    assert "<script>alert" not in page
    assert "&lt;b&gt;.onnx" in page
    assert not re.search(r"\bnan\b|\binf\b", page)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [("MatMul+Gelu", "product"), ("Softmax", "normalization, softmax, sums"), ("Add+Mul", "elementwise and others")],
)
def test_regions_are_colored_by_what_dominates_them(operator, kind):
    assert kind_of(operator) == kind
