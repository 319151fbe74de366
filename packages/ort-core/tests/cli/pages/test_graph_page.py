"""The picture of a placement: blocks, edges, reasons, times; and the page in a real browser where there is one."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ort_core import stages
from ort_core.cli.pages.graph_facts import MAX_ATTRIBUTE, MIN_BLOCK, Repeat, attribute_text, find_repeats, graph_facts
from ort_core.cli.pages.graph_page import graph_page, region_times_ms
from ort_core.cli.pages.page_parts import TABLE_STYLE
from ort_core.options import GraphOptimizationLevel, SessionOptions
from ort_core.providers.discovery import entry_point_sources
from ort_core.testing.fake_providers import echo_of, environment_of, plugin_of
from ort_core.testing.models import model_of

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
LAYERS = 14


def layered_text() -> str:
    """Return a graph of 14 equal layers of six nodes, each named, between a first and a last node."""
    lines = ["s = Relu(x)"]
    last = "s"
    for i in range(LAYERS):
        lines += [
            f"[l{i}_scale] a{i} = Mul({last}, w)", f"[l{i}_shift] b{i} = Add(a{i}, w)",
            f"[l{i}_tanh] c{i} = Tanh(b{i})", f"[l{i}_abs] d{i} = Abs(c{i})", f"[l{i}_root] e{i} = Sqrt(d{i})",
            f"[l{i}_sum] f{i} = Add(e{i}, {last})",
        ]  # fmt: skip
        last = f"f{i}"
    lines.append(f"[last] y = Neg({last})")
    return f"g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {{1, 2, 3, 4}}> {{ {' '.join(lines)} }}"


def placed(text: str, *operators: str, times: dict[str, float] | None = None):
    """Return the facts of a graph of which a fake provider takes some operators."""
    fake = echo_of(*operators, name="EchoExecutionProvider")
    environment = environment_of(plugin_of(fake), *entry_point_sources())
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    order = [("EchoExecutionProvider", {}), ("CPUExecutionProvider", {})]
    prepared = stages.prepare(model_of(text), options, environment, order)
    prepared.plan.close()
    return graph_facts(prepared.model.graph, prepared.report, times)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("abcdabcdabcd", [Repeat(0, 4, 3)]),
        ("xabcdabcdy", [Repeat(1, 4, 2)]),
        ("abcabcabc", []),  # fewer than MIN_BLOCK items each
        ("aaaaaaaa", [Repeat(0, 4, 2)]),
        ("abcd", []),
        ("", []),
        ("abcdabcdqrstuqrstu", [Repeat(8, 5, 2), Repeat(0, 4, 2)]),
        ("abcdeabcdeabcd", [Repeat(0, 5, 2)]),
    ],
)
def test_repeats_cover_as_much_as_they_can_and_overlap_nowhere(items, expected):
    found = find_repeats(items)
    assert sorted(found, key=lambda r: r.start) == sorted(expected, key=lambda r: r.start)
    for repeat in found:
        assert repeat.period >= MIN_BLOCK
        blocks = {items[repeat.start + i * repeat.period :][: repeat.period] for i in range(repeat.count)}
        assert len(blocks) == 1


def test_layers_are_found_as_blocks_without_any_scope_in_their_names():
    facts = placed(layered_text(), "Tanh")
    assert [group["label"] for group in facts["groups"]] == [f"block {i + 1} of {LAYERS}" for i in range(LAYERS)]
    inside = [node["op"] for node in facts["nodes"] if node["group"] == 3]
    assert inside == ["Mul", "Add", "Tanh", "Abs", "Sqrt", "Add"]


def test_edges_carry_types_and_reasons_stand_at_the_nodes_that_were_refused():
    facts = placed(layered_text(), "Tanh")
    names = [node["name"] for node in facts["nodes"]]
    by_name = {node["name"]: node for node in facts["nodes"] if node["kind"] == "node"}
    assert by_name["l0_tanh"]["provider"] == "EchoExecutionProvider"
    assert by_name["l0_tanh"]["reasons"] == []
    assert by_name["l0_abs"]["provider"] == "CPUExecutionProvider"
    assert [provider for provider, _ in by_name["l0_abs"]["reasons"]] == ["EchoExecutionProvider"]
    edges = {(names[a], names[b]): label for a, b, label, *_ in facts["edges"]}
    assert edges["l0_tanh", "l0_abs"] == "c0  float[N, 4]"
    assert ("x", "") in edges or ("x", names[1]) in edges
    assert len(facts["edges"]) == 3 + LAYERS * 7, "a weight is no edge"


def test_bodies_of_control_flow_are_groups_of_their_own():
    facts = placed(
        """g (float[N] x, bool flag) => (float[N] y)
        { y = If (flag) <
            then_branch = t () => (float[N] t) { t = Neg(x) },
            else_branch = e () => (float[N] e) { u = Abs(x) e = Sqrt(u) }
          > }""",
        "Cos",
    )
    assert {group["label"] for group in facts["groups"]} == {"If then_branch", "If else_branch"}
    assert all(node["provider"] for node in facts["nodes"] if node["kind"] == "node")


def test_time_of_a_region_stands_at_each_of_its_nodes_and_counts_once():
    facts = placed(layered_text(), "Cos", times={"l0_scale+l0_shift": 1.5, "last": 0.25})
    by_name = {node["name"]: node for node in facts["nodes"]}
    assert by_name["l0_scale"]["ms"] == by_name["l0_shift"]["ms"] == 1.5
    assert by_name["l0_scale"]["region"] == "l0_scale+l0_shift"
    assert (by_name["last"]["ms"], by_name["last"]["region"]) == (0.25, None)
    assert by_name["l1_scale"]["ms"] is None


def test_trace_gives_the_mean_time_of_each_region(tmp_path):
    events = [
        {"cat": "Node", "name": "a_kernel_time", "dur": 2, "args": {"duration_ns": 2500}},
        {"cat": "Node", "name": "a_kernel_time", "dur": 4, "args": {}},
        {"cat": "Session", "name": "model_run", "dur": 9, "args": {}},
    ]
    (tmp_path / "t.json").write_text(json.dumps(events))
    assert region_times_ms(tmp_path / "t.json") == {"a": pytest.approx(0.00325)}


def test_page_holds_everything_and_fetches_nothing():
    page = graph_page("</script><b>.onnx", placed(layered_text(), "Tanh"))
    assert "{{" not in page.replace("{{}}", "")
    assert page.count("</script>") == 2, "text of a model ends no script"
    assert not re.search(r"""(src|href)\s*=\s*["']""", page)
    assert "<b>.onnx" not in page.split("<script", 1)[0]


def test_explain_writes_the_page_with_times_and_refuses_a_trace_that_is_none(ort, model_path, tmp_path):
    assert ort("profile", model_path("small"), "--trace", tmp_path / "t.json").code == 0
    result = ort(
        "explain", model_path("small"), "--html", tmp_path / "p.html", "--trace", tmp_path / "t.json", "--json"
    )
    assert result.code == 0, result.err
    assert result.data["page"] == str(tmp_path / "p.html")
    (tmp_path / "no.json").write_text("{}")
    refused = ort("explain", model_path("small"), "--html", tmp_path / "p.html", "--trace", tmp_path / "no.json")
    assert refused.code == 2
    assert "not a Chrome trace" in re.sub(r"[\s│]+", " ", refused.err)
    assert ort("explain", model_path("small"), "--trace", tmp_path / "t.json").code == 2


def test_attributes_are_told_in_a_line_and_long_ones_are_cut():
    name = "x" * 30
    text = f"""g (float[2,3] x) => (float[3,2] y) {{
        [turn] t = Transpose <perm = [1, 0]> (x)
        [half] y = com.acme.Any <alpha = 0.5, mode = "{name}", many = [{", ".join(map(str, range(5000)))}]> (t) }}"""
    nodes = {node.name: node for node in model_of(text, opsets='"" : 21, "com.acme" : 1').graph}
    texts = {a.name: attribute_text(a) for node in nodes.values() for a in node.attributes.values()}
    assert texts["perm"] == "perm = [1, 0]"
    assert texts["alpha"] == "alpha = 0.5"
    assert texts["mode"] == f"mode = '{name}'"
    assert texts["many"] == "many = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … 5000 in all]"
    assert all(len(text) <= MAX_ATTRIBUTE for text in texts.values())


# in a browser ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(BROWSERS)}")
    return found


def rendered(browser: str, page: str, folder: Path, fragment: str = "", width: int = 1200) -> str:
    """Return the document after its script ran."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    flags = ("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
             f"--disable-component-update --disable-sync --virtual-time-budget=4000 --window-size={width},800"
    )  # fmt: skip
    command = [browser, *flags.split(), f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri() + fragment]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def shown(document: str) -> list[str]:
    """Return the titles of the boxes in a rendered picture."""
    boxes = re.findall(r'<g class="node[^"]*"[^>]*>.*?</g>', document, re.DOTALL)
    return [html.unescape(re.search(r"<text[^>]*>(.*?)</text>", box)[1]) for box in boxes]


def test_browser_shows_blocks_folded_and_everything_when_unfolded(browser, tmp_path):
    page = graph_page("layers", placed(layered_text(), "Tanh"))
    folded = shown(rendered(browser, page, tmp_path))
    assert folded.count("Relu") == folded.count("Neg") == 1
    assert sum(title.startswith("+ block") for title in folded) == LAYERS
    unfolded = shown(rendered(browser, page, tmp_path, "#unfold"))
    assert unfolded.count("Tanh") == LAYERS
    assert len(unfolded) == 2 + 2 + 6 * LAYERS  # input, output, first, last


def test_browser_search_counts_what_it_finds_and_marks_the_blocks_that_hold_it(browser, tmp_path):
    page = graph_page("layers", placed(layered_text(), "Tanh"))
    document = rendered(browser, page, tmp_path, "#search=l3_tanh")
    assert "1 found" in document
    assert document.count('class="node folded found"') == 1


def test_browser_opens_the_blocks_around_a_node_that_a_link_names_and_tells_why_it_was_refused(browser, tmp_path):
    page = graph_page("layers", placed(layered_text(), "Tanh"))
    document = rendered(browser, page, tmp_path, "#node=l3_abs")
    assert shown(document).count("Abs") == 1
    assert 'class="node chosen"' in document
    aside = document.split("<aside", 1)[1].split("</aside>", 1)[0]
    assert "CPUExecutionProvider" in aside
    assert re.search(r'class="reason">EchoExecutionProvider: ', aside)


def test_browser_outlines_the_partitions_and_shows_types_on_edges(browser, tmp_path):
    page = graph_page("layers", placed(layered_text(), "Tanh"))
    document = rendered(browser, page, tmp_path, "#unfold")
    outlined = set(re.findall(r'data-partition="([^"]+)"', document))
    assert len(outlined) == 2 * LAYERS + 1
    assert "float[N, 4]" in "".join(re.findall(r'<text class="label[^>]*>([^<]*)', document))
    boxes = re.findall(r'class="node[^"]*" transform="translate\(([-\d.e]+),([-\d.e]+)\)"', document)
    assert len(set(boxes)) == len(boxes) == len(shown(document)), "two boxes lie on one another"


def test_browser_shows_a_type_whole_where_no_other_box_stands_beside(browser, tmp_path):
    type_text = "float[batch, channels, height, width]"
    text = f"g ({type_text} x) => ({type_text} y) {{ a = Abs(x) y = Neg(a) }}"
    document = rendered(browser, graph_page("chain", placed(text, "Tanh")), tmp_path)
    labels = re.findall(r'<text class="label[^>]*>([^<]*)', document)
    assert labels == [type_text] * 3


MEASURE = """<script>
const boxes = [...document.querySelectorAll('g.node')].map((box) => {
  const rect = box.querySelector('rect').getBoundingClientRect();
  const texts = [...box.querySelectorAll('text')].map((text) => text.getBoundingClientRect());
  const spills = (t) => t.left < rect.left || t.right > rect.right || t.top < rect.top || t.bottom > rect.bottom;
  return { rect, spills: texts.some(spills) };
});
const whole = document.getElementById('picture').getBoundingClientRect();
const text = document.querySelector('g.node text.sub').getBoundingClientRect();
document.body.dataset.spilling = boxes.filter((box) => box.spills).length;
const isOutside = ({ rect }) => rect.left < whole.left || rect.right > whole.right || rect.top < whole.top
  || rect.bottom > whole.bottom;
document.body.dataset.outside = boxes.filter(isOutside).length;
document.body.dataset.height = text.height;
</script></body>"""


def measured(document: str, name: str) -> float:
    return float(re.search(rf'<body[^>]* data-{name}="([^"]+)"', document)[1])


def test_browser_fits_the_whole_graph_into_the_window_when_asked(browser, tmp_path):
    page = graph_page("layers", placed(layered_text(), "Tanh")).replace("</body>", MEASURE)
    assert measured(rendered(browser, page, tmp_path, "#unfold"), "outside") > 0, "a long graph begins at its top"
    assert measured(rendered(browser, page, tmp_path, "#unfold&fit"), "outside") == 0


def test_browser_begins_with_text_that_can_be_read_and_stays_inside_its_box(browser, tmp_path):
    page = graph_page("layers", placed(layered_text(), "Tanh")).replace("</body>", MEASURE)
    document = rendered(browser, page, tmp_path, "#unfold")
    assert measured(document, "height") >= 8, "pixels of the smaller line"
    assert measured(document, "spilling") == 0


def test_browser_shows_the_attributes_of_the_chosen_node(browser, tmp_path):
    text = "g (float[2,3] x) => (float[3,2] y) { [turn] t = Transpose <perm = [1, 0]> (x) y = Elu <alpha = 0.5> (t) }"
    facts = placed(text, "Abs")
    aside = rendered(browser, graph_page("m", facts), tmp_path, "#node=turn").split("<aside", 1)[1].split("</aside>")[0]
    assert "perm = [1, 0]" in aside
    assert "alpha" not in aside


def test_browser_gives_names_in_tables_of_reports_their_room_on_a_narrow_screen(browser, tmp_path):
    cells = "".join(f'<td class="n">{"9" * 12}</td>' for _ in range(6))
    table = f'<table><tbody><tr><td id="name">a_long_name_of_a_value</td>{cells}</tr></tbody></table>'
    script = "<script>document.body.dataset.width = document.getElementById('name').offsetWidth;</script>"
    page = f"<!DOCTYPE html><style>{TABLE_STYLE}</style><body>{table}{script}"
    width = re.search(r'data-width="(\d+)"', rendered(browser, page, tmp_path, width=520))
    assert width
    assert int(width[1]) > 90
