"""The session of a decoder over blocks: its graph is made in memory, of the one that its folder has."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ort_core
from ort_genai.errors import InvalidModelFolder, raised_as
from ort_genai.paging.block_pool import BlockPool
from ort_genai.paging.paged_states import PagedRuns

if TYPE_CHECKING:
    from ort_genai.decoder import Decoder

log = logging.getLogger(__name__)
_LARGEST = 64 << 20  # bytes of a graph: one with its weights inside would lie in memory twice


@dataclass(frozen=True, slots=True)
class PagedDecoder:
    """A session over blocks, and the name of the input of positions, if its graph has one."""

    session: ort_core.InferenceSession
    positions: str | None

    def new_runs(self, decoder: Decoder, row_nbytes: int | None = None, kept_nbytes: int = 0) -> PagedRuns:
        """Return runs over a pool of their own.

        Args:
            decoder: whose graph this is.
            row_nbytes: of blocks that rows may hold; ``None``: any number.
            kept_nbytes: of further ones, for beginnings that are kept.
        """
        caches = [(each.heads, each.size, each.dtype) for each in decoder.caches]
        return PagedRuns(decoder, self, BlockPool(caches, row_nbytes, kept_nbytes))


def open_paged(decoder: Decoder) -> PagedDecoder | None:
    """Return the decoder over blocks; ``None`` where its graph does not fit, which the log says.

    The decoder lets go of its own session before: who runs over blocks needs the weights once.
    """
    from onnx import load, load_from_string

    from ort_genai.paging.paged_graph import DecoderNames, NotPaged, paged_graph

    source = decoder.source
    names = DecoderNames(
        decoder.tokens, decoder.positions, decoder.mask, decoder.logits,
        tuple((each.past, each.present) for each in decoder.caches),
    )  # fmt: skip
    try:
        reason = _reason(decoder)
        if reason is not None:
            raise NotPaged(reason)
        model = load_from_string(source) if isinstance(source, bytes) else load(source, load_external_data=False)
        content = paged_graph(model, names).SerializeToString()
        decoder.release_session()
        with raised_as(InvalidModelFolder):
            session = decoder.open_like(content)
    except (NotPaged, InvalidModelFolder) as refusal:
        log.info("caches lie in one piece, and not in blocks: %s", refusal)
        return None
    known = {each.name for each in session.get_inputs()}
    return PagedDecoder(session, decoder.positions if decoder.positions in known else None)


def _reason(decoder: Decoder) -> str | None:
    """Return why a decoder is not even looked at."""
    source = decoder.source
    if not decoder.shares_caches:
        return "genai_config.json has search.past_present_share_buffer = false"
    if decoder.providers[0] != "CPUExecutionProvider":
        return "PagedAttention is for processors alone here"
    size = len(source) if isinstance(source, bytes) else Path(source).stat().st_size
    return f"its graph is of {size >> 20} MB, with weights within" if size > _LARGEST else None
