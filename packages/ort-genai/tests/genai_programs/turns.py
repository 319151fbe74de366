"""Run several requests by an engine, continue one, stop one by its text and cancel one: program FOLDER."""

import sys

import onnxruntime_genai as og

model = og.Model(sys.argv[1])
tokenizer = og.Tokenizer(model)
engine = og.Engine(model)
limits = og.RequestOptions()
limits.set_max_session_tokens(100)
print(engine.get_capabilities().configured_max_batch_size, engine.has_pending_requests())


def finished():
    """Return texts and ends of all requests, by their number."""
    buffer, texts, ends = engine.create_event_buffer(8), {}, {}
    while engine.has_pending_requests():
        for event in engine.run(buffer):
            number = requests.index(event.request)
            if event.flags & og.EngineEventFlags.FAILED:
                raise RuntimeError(f"request {number}: {event.error_code}")
            if event.flags & og.EngineEventFlags.TOKEN:
                texts.setdefault(number, []).append(event.token)
            if event.flags & og.EngineEventFlags.TURN_FINISHED:
                ends[number] = (str(event.finish_reason), event.usage.prompt_tokens, event.usage.generated_tokens)
    return [(number, texts[number], ends[number]) for number in sorted(ends)]


requests = [engine.create_request(options=limits) for _ in range(3)]
for place, request in enumerate(requests):
    options = og.TurnOptions(request)
    options.set_do_sample(False)
    options.set_max_generated_tokens(6 + place)
    request.begin_turn(tokenizer.encode("the man " * (place + 1)), options)
print(*finished(), sep="\n")
for request in requests:
    request.close()
engine = og.Engine(model)  # a batch of a fixed size goes on with one request alone
requests = [engine.create_request(options=limits)]
(request,) = requests
again = og.TurnOptions(request)
again.set_max_generated_tokens(5)
again.set_repetition_penalty(1.3)
for text in ("the man", " and then", " in the"):
    number = request.begin_turn(tokenizer.encode(text), again)
    print(*finished(), sep="\n")
print(request.cancel_turn(number))
request.close()
try:
    request.begin_turn(tokenizer.encode("x"))
except RuntimeError as error:
    print("refused:", error)
