"""The one writer of CUDA C++: names by content, walks over work, templates, and no other place that writes them."""

from __future__ import annotations

import re
from pathlib import Path

import ort_ep_cuda
from ort_ep_cuda.lowering.writing.writer import THREADS, Worker, blocks_for, coordinates, filled, named, template, walk


def test_kernels_of_equal_text_have_one_name_and_others_have_another():
    parameters = "const @T@* x, @T@* out, long long count"
    first, again, other = (filled("twice", parameters, "out[i] = x[i];", {"T": t}) for t in ("int", "int", "float"))
    assert first == again
    assert first.name != other.name
    assert first.source.startswith(f'extern "C" __global__ void {first.name}(const int* x, int* out, long long count)')
    assert "@" not in first.source


def test_a_template_without_a_loop_has_its_lines_alone():
    kernel = template("one", "int* out", "\nout[0] = @N@;\n", {"N": "7"})
    assert kernel == named("one", ["int* out"], ["out[0] = 7;"])


def run_walk(worker: Worker, count: int, grid: int, block: tuple[int, int]) -> list[int]:
    """Return the pieces that all workers of a launch take, by the texts of the walk read as numbers."""
    first, step = (text.replace("(long long)", "").replace(".", "_") for text in worker.value)
    head = walk(worker, "k", "n")
    assert head == f"for (long long k = {worker.value[0]}; k < n; k += {worker.value[1]}) {{"
    found = []
    for b in range(grid):
        for y in range(block[1] if worker is not Worker.BLOCK else 1):
            for x in range(block[0] if worker is Worker.THREAD else 1):
                names = {"blockIdx_x": b, "gridDim_x": grid, "blockDim_x": block[0], "blockDim_y": block[1],
                         "threadIdx_x": x, "threadIdx_y": y}  # fmt: skip
                found += range(eval(first, {}, names), count, eval(step, {}, names))
    return found


def test_each_walk_takes_every_piece_once():
    for worker, block in ((Worker.THREAD, (4, 1)), (Worker.WARP, (4, 3)), (Worker.BLOCK, (4, 1))):
        for count, grid in ((0, 1), (1, 2), (29, 3)):
            assert sorted(run_walk(worker, count, grid, block)) == list(range(count)), worker


def test_grids_have_a_place_for_each_piece_as_far_as_blocks_go():
    assert blocks_for(0) == (1, 1, 1)
    assert blocks_for(THREADS + 1, THREADS) == (2, 1, 1)
    assert blocks_for(1 << 40, THREADS) == (1 << 16, 1, 1)


def test_positions_become_offsets_of_each_operand():
    line = coordinates("p", ["", "3"], [["6", "2"], ["10", "1"]], ["a", "b"])
    scope = {"a": 0, "b": 0, "p": 7}
    exec(line.replace("const Index ", "").replace("Index ", "").replace("/=", "//="), {}, scope)
    assert (scope["a"], scope["b"]) == (2 * 6 + 1 * 2, 2 * 10 + 1)


def test_no_other_file_declares_kernels_or_walks_over_grids():
    """Walks of their own: recurrent layers have a grid of rows and directions; chunks are several elements a step."""
    package = Path(ort_ep_cuda.__file__).parent
    texts = {path.name: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    assert {name for name, text in texts.items() if re.search(r'f[\'"]extern "C"', text)} == {"writer.py"}
    walks = {name for name, text in texts.items() if re.search(r"blockIdx|gridDim", text)}
    assert walks == {"writer.py", "recurrent_kernel.py", "chunked_map.py"}
