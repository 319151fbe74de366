"""Wrong calls of onnxruntime-genai's names: `record_errors.py` writes what its wheel raises.

A program that catches ``RuntimeError`` around one of these must catch the error here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

import numpy as np

TOKENS = np.array([5, 7, 101, 33], np.int32)


@dataclass(frozen=True)
class Scene:
    """One module, with a model folder and an empty folder.

    Attributes:
        module: ``ort_genai`` or ``onnxruntime_genai``.
        folder: of a text model.
        empty: a folder with files that are neither image nor sound, and without a model.
    """

    module: ModuleType
    folder: Path
    empty: Path

    @cached_property
    def model(self):
        return self.module.Model(str(self.folder))

    @cached_property
    def tokenizer(self):
        return self.module.Tokenizer(self.model)

    @cached_property
    def engine(self):
        return self.module.Engine(self.model)

    def config(self):
        return self.module.Config(str(self.folder))

    def params(self, **options):
        made = self.module.GeneratorParams(self.model)
        made.set_search_options(**{"max_length": 20, **options})
        return made

    def begun(self, tokens=TOKENS, **options):
        made = self.module.Generator(self.model, self.params(**options))
        made.append_tokens(tokens)
        return made

    def request(self):
        return self.engine.create_request()

    def guided(self, kind, grammar):
        made = self.params()
        made.set_guidance(kind, grammar)
        return self.module.Generator(self.model, made)

    def configured(self, change):
        made = self.config()
        change(made)
        return self.module.Model(made)


def _file(scene: Scene, name: str) -> str:
    return str(scene.empty / name)


def _ended(scene: Scene) -> None:
    generator = scene.begun(max_length=6)
    for _ in range(9):
        generator.generate_next_token()


def _terminated(scene: Scene) -> None:
    generator = scene.begun()
    generator.set_runtime_option("terminate_session", "1")
    generator.generate_next_token()


def _turn(scene: Scene, tokens: object) -> int:
    return scene.request().begin_turn(tokens)


def _second_turn(scene: Scene) -> None:
    request = scene.request()
    request.begin_turn(TOKENS)
    request.begin_turn(TOKENS)


def _closed(scene: Scene) -> None:
    request = scene.request()
    request.close()
    request.begin_turn(TOKENS)


def _foreign_options(scene: Scene) -> None:
    options = scene.module.TurnOptions(scene.request())
    scene.request().begin_turn(TOKENS, options)


def _option(scene: Scene, name: str, value: object) -> None:
    getattr(scene.module.TurnOptions(scene.request()), name)(value)


def _drafted(scene: Scene) -> None:
    scene.request().set_draft_tokens(TOKENS)


def _long_session(scene: Scene) -> None:
    options = scene.module.RequestOptions()
    options.set_max_session_tokens(1 << 20)
    scene.engine.create_request(options=options)


def _adapter(scene: Scene) -> None:
    scene.begun().set_active_adapter(scene.module.Adapters(scene.model), "nothing")


def _named(scene: Scene, act: Callable[[object], object]) -> object:
    return act(scene.module.NamedTensors())


CASES: dict[str, Callable[[Scene], object]] = {
    "config of a missing folder": lambda s: s.module.Config("/no/such/folder"),
    "config of an empty folder": lambda s: s.module.Config(str(s.empty)),
    "config of a number": lambda s: s.module.Config(5),
    "config of nothing": lambda s: s.module.Config(None),
    "config without arguments": lambda s: s.module.Config(),
    "model of a missing folder": lambda s: s.module.Model("/no/such/folder"),
    "model of a number": lambda s: s.module.Model(5),
    "model without arguments": lambda s: s.module.Model(),
    "overlay that is not JSON": lambda s: s.config().overlay("{"),
    "overlay of a list": lambda s: s.config().overlay("[]"),
    "overlay of an unknown search option": lambda s: s.config().overlay('{"search": {"nothing": 1}}'),
    "overlay of an unknown section": lambda s: s.config().overlay('{"nothing": {}}'),
    "overlay of a number": lambda s: s.config().overlay(5),
    "overlay of a wrong type": lambda s: s.config().overlay('{"search": {"do_sample": 1}}'),
    "unknown provider": lambda s: s.configured(lambda c: c.append_provider("nothing")),
    "provider of a number": lambda s: s.config().append_provider(5),
    "provider option of a number": lambda s: s.config().set_provider_option("cuda", "device_id", 5),
    "model data that was not given": lambda s: s.config().remove_model_data("nothing"),
    "model data of a wrong type": lambda s: s.config().add_model_data("x", 5),
    "model data that is not a model": lambda s: s.configured(lambda c: c.add_model_data("model.onnx", b"nothing")),
    "a file that is missing": lambda s: s.configured(
        lambda c: c.overlay('{"model": {"decoder": {"filename": "nothing.onnx"}}}')
    ),
    "device type": lambda s: s.config().set_decoder_provider_options_hardware_device_type("cuda", 5),
    "tokenizer of a number": lambda s: s.module.Tokenizer(5),
    "tokenizer of a missing folder": lambda s: s.module.Tokenizer("/no/such/folder"),
    "encode nothing": lambda s: s.tokenizer.encode(None),
    "encode a number": lambda s: s.tokenizer.encode(5),
    "encode bytes": lambda s: s.tokenizer.encode(b"\xff"),
    "encode no texts": lambda s: s.tokenizer.encode_batch([]),
    "encode a batch of numbers": lambda s: s.tokenizer.encode_batch([5]),
    "decode a text": lambda s: s.tokenizer.decode("abc"),
    "decode nothing": lambda s: s.tokenizer.decode(None),
    "decode a batch of nothing": lambda s: s.tokenizer.decode_batch(None),
    "token of a number": lambda s: s.tokenizer.to_token_id(5),
    "a stream's text": lambda s: s.tokenizer.create_stream().decode("abc"),
    "unknown tokenizer option": lambda s: s.tokenizer.update_options(nothing="true"),
    "tokenizer option of a wrong value": lambda s: s.tokenizer.update_options(add_special_tokens=5),
    "token that the model lacks": lambda s: s.tokenizer.bor_token_id,
    "messages that are not JSON": lambda s: s.tokenizer.apply_chat_template("nothing"),
    "messages of a number": lambda s: s.tokenizer.apply_chat_template(5),
    "messages as a list": lambda s: s.tokenizer.apply_chat_template([{"role": "user", "content": "hi"}]),
    "broken template": lambda s: s.tokenizer.apply_chat_template("[]", template_str="{{ nothing"),
    "tools that are not JSON": lambda s: s.tokenizer.apply_chat_template("[]", tools="nothing"),
    "unknown search option": lambda s: s.params(nothing=1),
    "search option of a text": lambda s: s.params(top_k="five"),
    "search option of nothing": lambda s: s.params(top_k=None),
    "search option of a list": lambda s: s.params(top_k=[5]),
    "number in place of a bool": lambda s: s.params(do_sample=1),
    "bool in place of a number": lambda s: s.params(top_k=True),
    "unknown speculative option": lambda s: s.params().set_speculative_options(nothing=1),
    "speculative option of a text": lambda s: s.params().set_speculative_options(max_draft_tokens="five"),
    "no rows": lambda s: s.begun(batch_size=0),
    "no beams": lambda s: s.begun(num_beams=0),
    "no length": lambda s: s.begun(max_length=0),
    "more length than the context": lambda s: s.begun(max_length=1 << 20),
    "more texts than beams": lambda s: s.begun(num_beams=2, num_return_sequences=3),
    "params of nothing": lambda s: s.module.GeneratorParams(None),
    "params of a number": lambda s: s.module.GeneratorParams(5),
    "generator of nothing": lambda s: s.module.Generator(s.model, None),
    "generator without params": lambda s: s.module.Generator(s.model),
    "guidance of an unknown kind": lambda s: s.guided("nothing", "x"),
    "guidance without data": lambda s: s.guided("regex", ""),
    "guidance of a broken schema": lambda s: s.guided("json_schema", "{"),
    "guidance of a wrong schema": lambda s: s.guided("json_schema", '{"type": "nothing"}'),
    "guidance of a broken expression": lambda s: s.guided("regex", "("),
    "guidance of a broken grammar": lambda s: s.guided("lark_grammar", "start: ("),
    "guidance of a number": lambda s: s.guided("regex", 5),
    "append nothing": lambda s: s.begun(np.zeros(0, np.int32)),
    "append None": lambda s: s.begun(None),
    "append a text": lambda s: s.begun("abc"),
    "append texts": lambda s: s.begun(["a", "b"]),
    "append too much": lambda s: s.begun(max_length=3),
    "append an unknown token": lambda s: s.begun(np.array([1 << 20], np.int32)),
    "append beyond the length later": lambda s: s.begun().append_tokens(np.zeros(30, np.int32)),
    "generate before tokens": lambda s: s.module.Generator(s.model, s.params()).generate_next_token(),
    "generate beyond the length": _ended,
    "generate in a session that is to end": _terminated,
    "terminate by another value": lambda s: s.begun().set_runtime_option("terminate_session", "2"),
    "runtime option of a number": lambda s: s.begun().set_runtime_option("terminate_session", 1),
    "sequence of a text": lambda s: s.begun().get_sequence("0"),
    "unknown output": lambda s: s.begun().get_output("nothing"),
    "unknown input": lambda s: s.begun().get_input("nothing"),
    "logits of another size": lambda s: s.begun().set_logits(np.zeros((1, 3), np.float32)),
    "logits of a text": lambda s: s.begun().set_logits("abc"),
    "rewind too far": lambda s: s.begun().rewind_to(99),
    "rewind below nothing": lambda s: s.begun().rewind_to(-1),
    "rewind to a text": lambda s: s.begun().rewind_to("0"),
    "inputs of a number": lambda s: s.begun().set_inputs(5),
    "input of an unknown name": lambda s: s.begun().set_model_input("nothing", np.zeros((1, 2), np.float32)),
    "adapter that is not loaded": _adapter,
    "adapters of nothing": lambda s: s.module.Adapters(None),
    "unload an unknown adapter": lambda s: s.module.Adapters(s.model).unload("nothing"),
    "load an adapter that is missing": lambda s: s.module.Adapters(s.model).load("/no/such/file", "a"),
    "load an adapter that is broken": lambda s: s.module.Adapters(s.model).load(_file(s, "nothing.bin"), "a"),
    "load an adapter of a number": lambda s: s.module.Adapters(s.model).load(5, "a"),
    "tensor of a text": lambda s: s.module.Tensor("abc"),
    "tensor of nothing": lambda s: s.module.Tensor(None),
    "tensor of objects": lambda s: s.module.Tensor(np.array([object()])),
    "named tensor that is missing": lambda s: _named(s, lambda n: n["nothing"]),
    "delete a named tensor that is missing": lambda s: _named(s, lambda n: n.__delitem__("nothing")),
    "named tensor of a text": lambda s: _named(s, lambda n: n.__setitem__("x", "abc")),
    "image that is missing": lambda s: s.module.Images.open("/no/such/file.png"),
    "image that is none": lambda s: s.module.Images.open(_file(s, "nothing.bin")),
    "no image": lambda s: s.module.Images.open(),
    "image of a number": lambda s: s.module.Images.open(5),
    "image of no bytes": lambda s: s.module.Images.open_bytes(b""),
    "image of a text": lambda s: s.module.Images.open_bytes("abc"),
    "sound that is missing": lambda s: s.module.Audios.open("/no/such/file.wav"),
    "no sound": lambda s: s.module.Audios.open(),
    "sound of a number": lambda s: s.module.Audios.open(5),
    "sound of a text": lambda s: s.module.Audios.open_bytes("abc"),
    "images made": lambda s: s.module.Images(),
    "audios made": lambda s: s.module.Audios(),
    "processor of a text model": lambda s: s.model.create_multimodal_processor(),
    "processor made": lambda s: s.module.MultiModalProcessor(),
    "streaming processor of a text model": lambda s: s.model.create_streaming_processor(),
    "streaming processor of a number": lambda s: s.module.StreamingProcessor(5),
    "heads of a model without them": lambda s: s.module.MtpGenerator(s.model, s.model, s.params()),
    "heads of nothing": lambda s: s.module.MtpGenerator(s.model, None, s.params()),
    "engine of nothing": lambda s: s.module.Engine(None),
    "engine of a number": lambda s: s.module.Engine(5),
    "request made": lambda s: s.module.Request(),
    "request of options in place": lambda s: s.engine.create_request(s.module.RequestOptions()),
    "request of other options": lambda s: s.engine.create_request(options=5),
    "request of more than the context": _long_session,
    "run without a buffer": lambda s: s.engine.run(None),
    "run without arguments": lambda s: s.engine.run(),
    "buffer of less than nothing": lambda s: s.engine.create_event_buffer(-1),
    "buffer of a text": lambda s: s.engine.create_event_buffer("5"),
    "event that is not there": lambda s: s.engine.create_event_buffer(4)[2],
    "turn of no tokens": lambda s: _turn(s, np.zeros(0, np.int32)),
    "turn of rows": lambda s: _turn(s, np.zeros((2, 2), np.int32)),
    "turn of None": lambda s: _turn(s, None),
    "turn of a text": lambda s: _turn(s, "abc"),
    "turn of more than the context": lambda s: _turn(s, np.zeros(1 << 16, np.int32)),
    "turn within a turn": _second_turn,
    "turn of a closed request": _closed,
    "turn with another's options": _foreign_options,
    "rewind to an unknown turn": lambda s: s.request().rewind_to_start_of_turn(99),
    "drafts before a turn": _drafted,
    "session of less than nothing": lambda s: s.module.RequestOptions().set_max_session_tokens(-1),
    "tokens of a text": lambda s: _option(s, "set_max_generated_tokens", "5"),
    "fewer tokens than none": lambda s: _option(s, "set_max_generated_tokens", -1),
    "seed of a text": lambda s: _option(s, "set_seed", "5"),
    "stop strings as a text": lambda s: _option(s, "set_stop_strings", 5),
    "an empty stop string": lambda s: _option(s, "set_stop_strings", [""]),
    "temperature of a text": lambda s: _option(s, "set_temperature", "hot"),
    "turn options of nothing": lambda s: s.module.TurnOptions(None),
    "unknown log option": lambda s: s.module.set_log_options(nothing=True),
    "log option of a number": lambda s: s.module.set_log_options(enabled=5),
    "log callback of a number": lambda s: s.module.set_log_callback(5),
    "library that is missing": lambda s: s.module.register_execution_provider_library("x", "/no/such/library.so"),
    "library that was not registered": lambda s: s.module.unregister_execution_provider_library("nothing"),
    "device of a text": lambda s: s.module.set_current_gpu_device_id("0"),
}


def raised(case: str, scene: Scene) -> str:
    """Return the built-in class of the error, which is the nearest of its ancestors; empty: none."""
    try:
        CASES[case](scene)
    except Exception as error:  # noqa: BLE001 - its class is what is asked for
        return next(each.__name__ for each in type(error).__mro__ if each.__module__ == "builtins")
    return ""
