"""The tokenizer that a GGUF file holds, as ``tokenizer.json``: pairs of bytes, or pieces with scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from ort_genai.errors import InvalidModelFolder

Fields = Mapping[str, object]
_LONGEST = 1 << 12  # characters of a piece: each is cut at all places
_CONTROL, _USER_DEFINED, _BYTE = 3, 4, 6
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_SPLITS = {"llama-bpe": _LLAMA3, "smaug-bpe": _LLAMA3, "dbrx": _LLAMA3, "qwen2": _QWEN2}
_BY_DIGIT = ("smollm", "starcoder", "refact", "command-r", "codeshell")
_PLAIN = ("default", "gpt-2", "olmo", "jais", "mpt", "phi-2", "trillion")


def write_tokenizer(fields: Fields, folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``.

    Raises:
        InvalidModelFolder: the file's tokenizer is of a kind that is not known, or lacks a part.
    """
    kind = fields.get("tokenizer.ggml.model")
    tokens = _texts(fields, "tokens")
    makers = {"gpt2": _of_bytes, "llama": _of_pieces}
    if not isinstance(kind, str) or kind not in makers:
        raise InvalidModelFolder(
            f"the tokenizer {kind!r} of the GGUF file cannot be written; known: {', '.join(makers)}"
        )
    made = makers[kind](fields, tokens)
    _add_tokens(made, fields, tokens)
    start = _start(fields, tokens)
    if start is not None:
        named = {"id": "start", "ids": [start], "tokens": [tokens[start]]}  # the token may read as a template itself
        made.post_processor = processors.TemplateProcessing(
            single="start $A", pair="start $A $B", special_tokens=[named]
        )  # fmt: skip
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(_config(fields, tokens), indent=2), encoding="utf-8")


def _of_bytes(fields: Fields, tokens: list[str]) -> Tokenizer:
    pairs = [tuple(each.split(" ")) for each in _texts(fields, "merges")]
    if any(len(pair) != 2 for pair in pairs):
        raise InvalidModelFolder("tokenizer.ggml.merges holds an entry that is not a pair")
    made = Tokenizer(_model(tokens, cast(list[tuple[str, str]], pairs)))
    made.pre_tokenizer = _splits(str(fields.get("tokenizer.ggml.pre", "default")))
    made.decoder = decoders.ByteLevel()
    return made


def _splits(kind: str) -> pre_tokenizers.PreTokenizer:
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind in _PLAIN:
        return plain
    if kind in _BY_DIGIT:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain])
    if kind in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[kind]), behavior="isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    known = ", ".join([*_PLAIN, *_BY_DIGIT, *_SPLITS])
    raise InvalidModelFolder(f"the tokenizer splits text as {kind!r}, which is not known; known: {known}")


def _of_pieces(fields: Fields, tokens: list[str]) -> Tokenizer:
    """Return SentencePiece's pairs: those that make a token with a better score join first."""
    scores = fields.get("tokenizer.ggml.scores")
    is_scored = isinstance(scores, list) and all(isinstance(each, int | float) for each in scores)
    if not isinstance(scores, list) or not is_scored or len(scores) != len(tokens):
        raise InvalidModelFolder(f"tokenizer.ggml.scores must hold {len(tokens)} numbers")
    places = {token: place for place, token in enumerate(tokens)}
    pairs = []
    longest = max(map(len, tokens), default=0)
    if longest > _LONGEST:
        raise InvalidModelFolder(f"a token of the GGUF file has {longest} characters, more than {_LONGEST}")
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in places and right in places:
                pairs.append((-score, places[left], places[right], left, right))
    pairs.sort()
    made = Tokenizer(_model(tokens, [(left, right) for *_, left, right in pairs], has_bytes=True))
    has_prefix = bool(fields.get("tokenizer.ggml.add_space_prefix", True))
    steps: list[normalizers.Normalizer] = [normalizers.Prepend("▁")] if has_prefix else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    ends: list[decoders.Decoder] = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *ends])
    return made


def _model(tokens: list[str], pairs: list[tuple[str, str]], has_bytes: bool = False) -> models.BPE:
    numbers = {token: place for place, token in enumerate(tokens)}
    try:
        unknown = "<unk>" if has_bytes and "<unk>" in numbers else None
        return models.BPE(numbers, pairs, byte_fallback=has_bytes, fuse_unk=has_bytes, unk_token=unknown)
    except Exception as error:
        raise InvalidModelFolder(f"the tokens and merges of the GGUF file do not fit: {error}") from error


def _add_tokens(made: Tokenizer, fields: Fields, tokens: list[str]) -> None:
    kinds = fields.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        return
    named = [(token, kind) for token, kind in zip(tokens, kinds, strict=True) if kind in (_CONTROL, _USER_DEFINED)]
    made.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token, kind in named if kind == _CONTROL]
    )
    made.add_tokens([AddedToken(token, special=False, normalized=False) for token, kind in named if kind != _CONTROL])


def _start(fields: Fields, tokens: list[str]) -> int | None:
    """Return the token that stands before each text, if one does."""
    default = fields.get("tokenizer.ggml.model") == "llama"
    place = fields.get("tokenizer.ggml.bos_token_id")
    if not fields.get("tokenizer.ggml.add_bos_token", default) or not isinstance(place, int):
        return None
    return place if 0 <= place < len(tokens) else None


def _config(fields: Fields, tokens: list[str]) -> dict[str, object]:
    is_bytes = fields.get("tokenizer.ggml.model") == "gpt2"
    found: dict[str, object] = {"tokenizer_class": "GPT2Tokenizer" if is_bytes else "LlamaTokenizer"}
    found["add_bos_token"] = _start(fields, tokens) is not None
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        place = fields.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(place, int) and 0 <= place < len(tokens):
            found[f"{name}_token"] = tokens[place]
    template = fields.get("tokenizer.chat_template")
    if isinstance(template, str):
        found["chat_template"] = template
    return found


def _texts(fields: Fields, name: str) -> list[str]:
    found = fields.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidModelFolder(f"tokenizer.ggml.{name} must be a list of texts, found {type(found).__name__}")
    return found
