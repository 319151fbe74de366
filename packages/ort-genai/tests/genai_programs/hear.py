"""Write down several sounds at once, by beams: program FOLDER SOUND SOUND."""

import os
import sys

import onnxruntime_genai as og

model = og.Model(og.Config(sys.argv[1]))
processor = model.create_multimodal_processor()
paths = sys.argv[2:]
try:
    og.Audios.open(paths[0], "/no/such/sound.wav")
except RuntimeError as error:
    print("refused:", os.path.basename(str(error)))
prompts = ["".join(["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"])] * len(paths)
for beams in (1, 4):
    inputs = processor(prompts, audios=og.Audios.open(*paths))
    params = og.GeneratorParams(model)
    params.set_search_options(
        do_sample=False, num_beams=beams, num_return_sequences=beams, batch_size=len(paths), max_length=24
    )
    generator = og.Generator(model, params)
    generator.set_inputs(inputs)
    while not generator.is_done():
        generator.generate_next_token()
    for place in range(len(paths) * beams):
        tokens = generator.get_sequence(place)
        print(beams, place, tokens[:4].tolist(), len(tokens) <= 24, isinstance(processor.decode(tokens).strip(), str))
