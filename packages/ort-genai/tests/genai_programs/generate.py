"""Continue several prompts at once, by beams: program FOLDER."""

import json
import sys

import onnxruntime_genai as og

prompts = ["the man in the", "a thin line and", "on the other hand"]
config = og.Config(sys.argv[1])
config.overlay(json.dumps({"search": {"batch_size": len(prompts), "num_beams": 3}}))
config.clear_providers()
model = og.Model(config)
tokenizer = og.Tokenizer(model)
params = og.GeneratorParams(model)
params.set_search_options(max_length=40, min_length=12, num_return_sequences=2)
stated = params.get_search_options()
print(model.type, model.device_type, [stated["max_length"] == 40, stated["do_sample"]])
generator = og.Generator(model, params)
generator.append_tokens(tokenizer.encode_batch(prompts))
while not generator.is_done():
    generator.generate_next_token()
for place in range(2 * len(prompts)):
    tokens = generator.get_sequence(place)
    print(place, len(tokens), tokens.tolist(), tokenizer.decode(tokens).startswith(prompts[place // 2]))
