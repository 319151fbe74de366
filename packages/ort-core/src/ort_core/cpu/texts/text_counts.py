"""A text pipeline as one native call: StringNormalizer, Tokenizer and TfIdfVectorizer, from strings to counts.

The strings of a run are joined once; the kernel reads their characters, so that no token becomes an object. What the
kernel does not know (characters beyond the basic plane, several strings a row) the reference kernels run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.code_cache import compiled
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.texts.token_counts import ARGUMENT_COUNT, ARGUMENTS, token_counts_kernel
from ort_core.cpu.guarded.mode import GuardedMode, guarded_mode
from ort_core.cpu.texts.guarded_counts import guarded_counts
from ort_core.cpu.texts.ngram_tables import NgramTables, ngram_tables
from ort_core.cpu.texts.text_memory import KEPT_NBYTES, TextMemory
from ort_core.cpu.texts.token_runs import ASCII, PLANE, TokenRuns, fold_table, token_runs
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.cpu.threads.pool_code import STEP_WORDS
from ort_core.plugin import Rejection, frozen
from ort_core.plugin.ir import Graph, Node, Value
from ort_core.plugin.kernels import RunGuard, RuntimeValue

PARALLEL_WORK = 20_000  # characters and counts below which waking other threads costs more than it saves
EXACT_COUNTS = 1 << 24  # characters of a string up to which float32 counts its tokens exactly
CASE_CHANGES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@frozen
class TextChain:
    """Nodes that are run as one, and what they do.

    Attributes:
        nodes: in their order.
        source: the strings.
        change: what happens to the case of each character.
        runs: what a token is.
        tables: of the n-grams.
        takes_any_shape: a Reshape to one axis comes first.
        takes_column: strings of shape [N, 1] are rows, too.
    """

    nodes: tuple[Node, ...]
    source: Value
    change: Callable[[str], str]
    runs: TokenRuns
    tables: NgramTables
    takes_any_shape: bool
    takes_column: bool


def text_chain(last: Node, graph: Graph) -> TextChain | Rejection:
    """Return the pipeline that ends in a TfIdfVectorizer, or why there is none to compile."""
    flatten = _before(last, graph, "", "Flatten")
    if flatten is not None and flatten.int_attribute("axis", 1) != 1:
        return Rejection("tokens are flattened otherwise than by row", last)
    tokenizer = _before(flatten or last, graph, "com.microsoft", "Tokenizer")
    if tokenizer is None:
        return Rejection("no Tokenizer in front", last)
    normalizer = _before(tokenizer, graph, "", "StringNormalizer")
    reshape = _before(normalizer or tokenizer, graph, "", "Reshape")
    if reshape is not None and not _is_to_one_axis(reshape):
        reshape = None
    change = CASE_CHANGES.get("NONE" if normalizer is None else _case_of(normalizer))
    if change is None or (normalizer is not None and normalizer.attribute("stopwords")):
        return Rejection("the StringNormalizer takes strings away or has no such case", last)
    runs, tables = token_runs(tokenizer), ngram_tables(last)
    if isinstance(runs, Rejection):
        return runs
    if isinstance(tables, Rejection):
        return tables
    pool = last.attribute("pool_strings")
    if isinstance(pool, tuple) and tokenizer.string_attribute("pad_value", "") in pool:
        return Rejection("what fills rows up is itself counted", last)
    nodes = tuple(node for node in (reshape, normalizer, tokenizer, flatten, last) if node is not None)
    source = nodes[0].input(0)
    assert source is not None
    column = flatten is not None and normalizer is None
    return TextChain(nodes, source, change, runs, tables, reshape is not None, column)


def _case_of(normalizer: Node) -> str:
    return normalizer.string_attribute("case_change_action", "NONE")


def _before(node: Node, graph: Graph, domain: str, op_type: str) -> Node | None:
    """Return the node in front if it is of that operator and nobody else reads its result."""
    value = node.input(0)
    found = None if value is None else value.producer
    if found is None or value is None or (found.domain, found.op_type) != (domain, op_type):
        return None
    return found if found in graph.nodes and value.use_count == 1 and value not in graph.outputs else None


def _is_to_one_axis(reshape: Node) -> bool:
    shape = reshape.input(1)
    constant = None if shape is None or shape.graph is None else shape.graph.fixed_constant(shape)
    return constant is not None and constant.array().tolist() == [-1]


class TextCounts:
    """A compiled text pipeline, to be run from any thread.

    Args:
        chain: what it does.
        target: what to compile for.
        pool: the threads, which share the rows.
    """

    def __init__(self, chain: TextChain, target: Target, pool: ThreadPool) -> None:
        self.inputs: tuple[Value | None, ...] = (chain.source,)
        self._chain, self._pool = chain, pool
        mode = chain.nodes[-1].string_attribute("mode", "TF")
        self._forms = [_Form(chain, ASCII, *_kernel(1, mode, target))]
        self._wide = _kernel(4, mode, target)

    @property
    def width(self) -> int:
        """The columns of the counts."""
        return self._chain.tables.width

    def run(self, arguments: Sequence[RuntimeValue], guard: RunGuard) -> list[np.ndarray] | None:
        """Return the counts [rows, columns] as float32, or ``None`` where the reference must run.

        Raises:
            AllocationLimitExceeded: it would take more memory than the guard allows.
        """
        (strings,) = arguments
        if not isinstance(strings, np.ndarray) or not self._are_rows(strings):
            return None
        rows = strings.reshape(-1).tolist()
        text = "".join(rows)
        lengths = list(map(len, rows))
        if max(lengths) >= EXACT_COUNTS:
            return None
        guard.check_allocation(
            4 * len(rows) * self._chain.tables.width + 8 * (len(text) + len(rows)), "a text pipeline"
        )
        is_ascii = text.isascii()
        characters = text.encode("ascii") if is_ascii else text.encode("utf-32-le", "surrogatepass")
        return (self._forms[0] if is_ascii else self._wide_form()).run(characters, lengths, len(text), self._pool)

    def _are_rows(self, strings: np.ndarray) -> bool:
        if strings.size == 0:
            return False
        chain = self._chain
        is_column = strings.ndim == 2 and strings.shape[1] == 1 and chain.takes_column
        return chain.takes_any_shape or strings.ndim == 1 or is_column

    def _wide_form(self) -> _Form:
        if len(self._forms) == 1:  # made when text asks for it: tens of milliseconds; two threads may both make one
            self._forms.append(_Form(self._chain, PLANE, *self._wide))
        return self._forms[1]


def _kernel(nbytes: int, mode: str, target: Target) -> tuple[CompiledModule, str]:
    name, functions = token_counts_kernel(nbytes, mode)
    return compiled(module_text(functions), target), name


class _Form:
    """The pipeline for characters of one size: its kernel, and the argument table as far as runs share it."""

    def __init__(self, chain: TextChain, fold_size: int, module: CompiledModule, name: str) -> None:
        self._module, self._tables, self._width = module, chain.tables, chain.tables.width
        self._fold = fold_table(chain.runs, chain.change, fold_size)
        self._words = np.zeros(STEP_WORDS + ARGUMENT_COUNT, np.int64)
        self._words[0] = module.address(name)
        self._words[STEP_WORDS:] = self._argument_words(chain)
        self._idle: list[TextMemory] = []
        self._mode = guarded_mode()

    def _argument_words(self, chain: TextChain) -> np.ndarray:
        words = np.zeros(ARGUMENT_COUNT, np.int64)
        tables, last, place = chain.tables, chain.nodes[-1], ARGUMENTS
        self._arrays = arrays = {
            place.fold: self._fold, place.hashes: tables.hashes, place.numbers: tables.numbers,
            place.starts: tables.starts, place.spelling: tables.spelling, place.firsts: tables.firsts,
            place.keys: tables.keys, place.nodes: tables.nodes, place.columns: tables.columns,
            place.weights: tables.weights,
        }  # fmt: skip
        for entry, array in arrays.items():
            words[entry] = array.ctypes.data
        words[place.fold_size], words[place.tokens] = len(self._fold), len(tables.firsts)
        words[place.token_mask], words[place.node_mask] = len(tables.numbers) - 1, len(tables.nodes) - 1
        words[place.least], words[place.width] = chain.runs.least, tables.width
        words[place.shortest], words[place.longest] = last.int_attribute("min_gram_length", 1), tables.longest
        words[place.distances] = last.int_attribute("max_skip_count", 0) + 1
        return words

    def run(self, characters: bytes, lengths: Sequence[int], count: int, pool: ThreadPool) -> list[np.ndarray] | None:
        """Return the counts, ``None`` where a character is beyond the fold table."""
        rows = len(lengths)
        if self._mode is not GuardedMode.OFF:
            found = guarded_counts(
                self._words, self._arrays, characters, lengths, (rows, self._width), pool, self._mode
            )
            return None if found is None else [found]
        cells = rows * self._width
        memory = self._memory(rows, len(characters), cells)
        memory.characters[: len(characters)] = characters
        memory.rows_at[1 : rows + 1] = lengths if rows == 1 else list(accumulate(lengths))
        memory.rows[0] = rows
        memory.flag[0] = 0
        pool.run(memory.address, 1, 1 if count + cells < PARALLEL_WORK else 1 << 30)
        counts = None if memory.flag[0] else memory.counts[:cells].reshape(rows, self._width)
        if memory.nbytes <= KEPT_NBYTES:
            counts = None if counts is None else counts.copy()
            self._idle.append(memory)
        return None if counts is None else [counts]

    def _memory(self, rows: int, nbytes: int, cells: int) -> TextMemory:
        """Return memory of a run: what an earlier one left if it is large enough; ``list`` is safe between threads."""
        try:
            found = self._idle.pop()
        except IndexError:
            found = None
        if found is not None and found.holds(rows, nbytes, cells):
            return found
        return TextMemory(self._words, rows, nbytes, cells)
