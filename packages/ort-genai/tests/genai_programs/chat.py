"""Answer lines of the standard input in one conversation, and go back to its beginning behind each: program FOLDER."""

import json
import sys
import time

import onnxruntime_genai as og

model = og.Model(sys.argv[1])
tokenizer = og.Tokenizer(model)
stream = tokenizer.create_stream()
params = og.GeneratorParams(model)
params.set_search_options(**{"max_length": 120, "do_sample": False, "top_p": 0.9, "top_k": 5, "batch_size": 1})
generator = og.Generator(model, params)
system = json.dumps([{"role": "system", "content": "Be brief."}])
beginning = tokenizer.encode(tokenizer.apply_chat_template(messages=system, add_generation_prompt=False))
generator.append_tokens(beginning)
for line in sys.stdin:
    start, told = time.time(), 0
    asked = json.dumps([{"role": "user", "content": line.strip()}])
    prompt = tokenizer.apply_chat_template(messages=asked, tools="", template_str="", add_generation_prompt=True)
    generator.append_tokens(tokenizer.encode(prompt))
    while not generator.is_done() and told < 20:
        generator.generate_next_token()
        token = generator.get_next_tokens()[0]
        print(token, end=" " if isinstance(stream.decode(token), str) else "?")
        told += 1
    print(f"\n[{told} tokens, {generator.token_count()} in all, {time.time() >= start}]")
    generator.rewind_to(len(beginning))
    print(generator.get_sequence(0).tolist() == list(beginning))
