"""Grammars are followed with tokenizers of other families than byte-level ones."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from genai_built import built
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import ort_genai as og
from ort_genai.errors import InvalidGeneration

LETTERS = [f"{start}{each}" for start in ("", "\u2581") for each in "abcdx1"]
PIECES = [("<unk>", 0.0), ("\u2581", -2.0), *((each, -3.0) for each in LETTERS)]


def model_with(tmp_path, library):
    """Return a tiny model with another tokenizer, whose last token ends texts."""
    folder = tmp_path / "words"
    shutil.copytree(built(), folder)
    library.add_special_tokens(["</s>"])
    library.save(str(folder / "tokenizer.json"))
    config = og.Config(folder)
    config.overlay(json.dumps({"model": {"eos_token_id": library.token_to_id("</s>")}}))
    return og.Model(config)


def guided(model, pattern):
    """Return a text that follows a regular expression."""
    params = og.GeneratorParams(model)
    params.set_guidance("regex", pattern)
    params.set_search_options(max_length=20)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array([3, 4], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return og.Tokenizer(model).decode(generator.get_sequence(0)[2:])


def test_a_unigram_tokenizer_follows_a_grammar(tmp_path):
    library = Tokenizer(models.Unigram(PIECES, unk_id=0))
    library.pre_tokenizer, library.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    assert re.fullmatch("[a-c ]{5,6}x", guided(model_with(tmp_path, library), "[a-c ]{6}x"))


def test_a_tokenizer_whose_tokens_are_not_known_is_refused_with_a_reason(tmp_path):
    library = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    model = model_with(tmp_path, library)
    assert json.loads(library.to_str())["decoder"] is None
    with pytest.raises(InvalidGeneration, match="grammars cannot be followed with this tokenizer"):
        guided(model, "a+")
