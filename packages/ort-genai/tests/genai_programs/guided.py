"""Let texts follow a schema, an expression and a grammar: program FOLDER."""

import json
import sys

import onnxruntime_genai as og

schema = {
    "x-guidance": {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "},
    "type": "object", "properties": {"name": {"enum": ["sun", "rain"]}, "is_cold": {"type": "boolean"}},
    "required": ["name", "is_cold"], "additionalProperties": False,
}  # fmt: skip
model = og.Model(og.Config(sys.argv[1]))
tokenizer = og.Tokenizer(model)
for kind, data in (
    ("json_schema", json.dumps(schema)),
    ("lark_grammar", f"start: %json {json.dumps(schema)}\n"),
    ("lark_grammar", 'start: word "-" word\nword: /[a-z]{3}/'),
    ("regex", "(yes|no), [0-9]{4}"),
):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=100, temperature=0.0, batch_size=1)
    params.set_guidance(kind, data, False)
    generator = og.Generator(model, params)
    generator.append_tokens(tokenizer.encode("What is the weather? "))
    start = before = len(generator.get_sequence(0))
    stream, text = tokenizer.create_stream(), ""
    while not generator.is_done():
        generator.generate_next_token()
        whole = generator.get_sequence(0)
        text += "".join(stream.decode(token) for token in whole[before:])
        before = len(whole)
    print(kind, text, before > start)
