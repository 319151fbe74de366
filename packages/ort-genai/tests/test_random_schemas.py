"""Texts that follow JSON schemas are valid by `jsonschema`: forty drawn schemas here, a thousand by `nox -s genai`."""

from __future__ import annotations

import json
import os

import pytest
from genai_built import built_wide
from genai_random_schemas import random_schema

import ort_genai as og
from ort_genai.guidance import Grammar, GrammarKind

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
COUNT = int(os.environ.get("ORT_GENAI_SCHEMAS", "40"))


def test_every_text_is_valid():
    with og.AsyncEngine(og.Model(built_wide()), og.EngineOptions(max_batch=16)) as engine:
        schemas = {seed: random_schema(seed) for seed in range(COUNT)}
        asked = {}
        for seed, schema in schemas.items():
            grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))
            options = og.GenerationOptions(max_tokens=1500, temperature=1.0, seed=seed, grammar=grammar)
            asked[seed] = engine.submit([3, 5, 7], options)
        for seed, request in asked.items():
            text = request.text()
            assert request.finished.reason is og.EndReason.STOP, f"seed {seed}: {text!r}"
            jsonschema.validate(json.loads(text), schemas[seed], cls=jsonschema.Draft202012Validator)
