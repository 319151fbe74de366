"""Ask one question after another, each with a generator of its own, and catch what fails: program FOLDER."""

import sys

import numpy as np
import onnxruntime_genai as og

try:
    og.Model("/no/such/folder")
except RuntimeError as error:
    print("refused:", str(error).split(":")[0].replace("\\", "/"))
model = og.Model(sys.argv[1])
tokenizer = og.Tokenizer(model)
system = tokenizer.encode("be kind ")
for question in ("where is the man?", "who is it?", ""):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=30, repetition_penalty=1.2, do_sample=False)
    generator = og.Generator(model, params)
    try:
        generator.append_tokens(np.concatenate([system, tokenizer.encode(question)]))
        while True:
            generator.generate_next_token()
            if generator.is_done():
                break
        print(generator.get_sequence(0).tolist(), generator.get_logits().shape)
        params.set_search_options(max_length=1 << 20)
        og.Generator(model, params)
    except RuntimeError as error:
        print("refused:", error)
    del generator
