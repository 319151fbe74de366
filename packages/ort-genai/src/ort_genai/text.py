"""Text and tokens, by the library ``tokenizers``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from ort_genai.arguments import demand, numbers
from ort_genai.configuration import Config
from ort_genai.errors import InvalidGeneration, InvalidModelFolder
from ort_genai.json_files import read_json
from ort_genai.library_panics import LibraryPanics
from ort_genai.token_bytes import TokenBytes

Message = Mapping[str, Any]  # Any: what a template reads of a message is up to the template
IMAGE_MARK = "\U0010fffd"  # where an image stands in a message: a private character
_OPTIONS = ("add_special_tokens", "skip_special_tokens")
_READING = LibraryPanics(InvalidModelFolder, "reading tokenizer.json")
_ENCODING = LibraryPanics(InvalidGeneration, "making tokens of a text")
_DECODING = LibraryPanics(InvalidGeneration, "making a text of tokens")


class Text:
    """The tokenizer of a model folder.

    Args:
        folder: with ``tokenizer.json``.

    Raises:
        InvalidModelFolder: there is none, or it cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise InvalidModelFolder(f"{str(folder)!r} has no tokenizer.json")
        try:
            with _READING:
                self.library = tokenizers.Tokenizer.from_file(str(file))
        except InvalidModelFolder:
            raise
        except Exception as error:
            raise InvalidModelFolder(f"{str(file)!r} cannot be read by tokenizers: {error}") from error
        self._config = _tokenizer_config(folder)
        self.template = _template(folder, self._config)

    def encode(self, text: str, *, has_special: bool = True) -> list[int]:
        """Return the tokens of a text; names of special tokens in it are these tokens.

        Raises:
            InvalidGeneration: it has half a pair of surrogates, which is not a character.
        """
        return self._encoded(self.library, text, has_special)

    def _encoded(self, library: tokenizers.Tokenizer, text: str, has_special: bool) -> list[int]:
        try:
            with _ENCODING:
                return library.encode(text, add_special_tokens=has_special).ids
        except TypeError as error:
            raise InvalidGeneration("the text has half a pair of surrogates, which is not a character") from error

    def chat_tokens(
        self, messages: Sequence[Message], *, tools: Sequence[Message] | None = None, image_token: str = "",
        values: Mapping[str, Any] | None = None,
    ) -> list[int]:  # fmt: skip
        """Return the tokens of a conversation.

        Args:
            messages: with ``role`` and ``content``.
            tools: descriptions that the template may list.
            image_token: name of the token that ``IMAGE_MARK`` in a message stands for; empty: for none.
            values: more names for the template.

        Names of special tokens in the messages are text: nobody ends his message, or speaks as another one, by writing
        ``<|im_end|>``. Those that the template writes are tokens.

        Raises:
            InvalidGeneration: there is no template, or it fails.
        """
        written = json.dumps([list(messages), list(tools or ()), dict(values or {})], ensure_ascii=False, default=str)
        names = [name for name in self._special_ids if json.dumps(name, ensure_ascii=False)[1:-1] in written]
        if not names and not image_token:
            return self.encode(self.chat(messages, tools=tools, **(values or {})), has_special=False)
        marks = _marks(written, names)
        hidden_tools = None if tools is None else [_replaced(each, marks) for each in tools]
        hidden_values = {name: _replaced(each, marks) for name, each in (values or {}).items()}
        whole = self.chat([_replaced(each, marks) for each in messages], tools=hidden_tools, **hidden_values)
        if image_token:
            whole = whole.replace(IMAGE_MARK, image_token)
        found: list[int] = []
        names_of_all = "(" + "|".join(map(re.escape, self._special_ids)) + ")"
        for piece in re.split(names_of_all, whole) if self._special_ids else [whole]:
            if piece in self._special_ids:
                found.append(self._special_ids[piece])
            else:
                back = {mark: name for name, mark in marks.items()}
                found += self._encoded(self._plain_library, _replaced(piece, back), False)
        return found

    @cached_property
    def token_bytes(self) -> TokenBytes:
        """What single tokens write."""
        return TokenBytes(self.library)

    @cached_property
    def _special_ids(self) -> dict[str, int]:
        """Special tokens by their names, the longest first."""
        tokens = self.library.get_added_tokens_decoder().items()
        found = {each.content: token for token, each in tokens if each.special and each.content}
        return dict(sorted(found.items(), key=lambda each: -len(each[0])))

    @cached_property
    def _plain_library(self) -> tokenizers.Tokenizer:
        """The tokenizer, to which names of special tokens are text."""
        made = tokenizers.Tokenizer.from_str(self.library.to_str())
        made.encode_special_tokens = True
        return made

    def decode(self, tokens: Sequence[int], *, skips_special: bool = True) -> str:
        """Return the text of tokens; those that the tokenizer does not have give nothing.

        Raises:
            InvalidGeneration: one is negative, or no number that a token can have.
        """
        try:
            with _DECODING:
                return self.library.decode(list(tokens), skip_special_tokens=skips_special)
        except (OverflowError, TypeError) as error:
            raise InvalidGeneration(f"what is to be decoded is not a list of tokens: {error}") from error

    def token(self, name: str) -> str | None:
        """Return a token's text by its name in ``tokenizer_config.json``: ``bos_token``."""
        found = self._config.get(name)
        if isinstance(found, dict):
            found = found.get("content")
        return found if isinstance(found, str) else None

    def chat(
        self, messages: Sequence[Message], *, template: str | None = None, tools: Sequence[Message] | None = None,
        is_answered: bool = True, **values: object,
    ) -> str:  # fmt: skip
        """Return the text of a conversation.

        Args:
            messages: with ``role`` and ``content``.
            template: in place of the model's.
            tools: descriptions that the template may list.
            is_answered: whether the text ends where the model's answer begins.
            values: more names for the template.

        Raises:
            InvalidGeneration: there is no template, or it fails, refuses, or does what the sandbox forbids.
        """
        source = template or self.template
        if source is None:
            raise InvalidGeneration(
                "the model has no chat template (chat_template in tokenizer_config.json); give template"
            )
        from ort_genai.chat_templates import written  # imports jinja2, for which texts without templates do not wait

        names = {name: self.token(name) or "" for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
        return written(
            source,
            {**names, "messages": list(messages), "tools": tools, "add_generation_prompt": is_answered, **values},
        )


class TextStream:
    """Text of tokens as they come: what a token completes, never half a character.

    Args:
        text: the tokenizer.
        skips_special: whether special tokens give nothing.
    """

    def __init__(self, text: Text, *, skips_special: bool = True) -> None:
        self._text, self._skips = text, skips_special
        self._tokens: list[int] = []
        self._start = self._end = 0  # of the tokens whose text is not all out

    def push(self, token: int) -> str:
        """Return what a further token adds to the text."""
        self._tokens.append(token)
        before = self._text.decode(self._tokens[self._start : self._end], skips_special=self._skips)
        now = self._text.decode(self._tokens[self._start :], skips_special=self._skips)
        if len(now) <= len(before) or now.endswith("\ufffd"):
            return ""
        self._start, self._end = self._end, len(self._tokens)
        return now[len(before) :]

    def finish(self) -> str:
        """Return what is left, half characters among it."""
        before = self._text.decode(self._tokens[self._start : self._end], skips_special=self._skips)
        now = self._text.decode(self._tokens[self._start :], skips_special=self._skips)
        self._start = self._end = len(self._tokens)
        return now[len(before) :]


class Tokenizer:
    """onnxruntime-genai's tokenizer.

    Args:
        source: a ``Model``, a ``Config`` or a folder.
    """

    def __init__(self, source: object) -> None:
        config = getattr(source, "config", source)
        self._config = config if isinstance(config, Config) else _config_of(config)
        self.text: Text = getattr(source, "text", None) or Text(self._config.tokenizer_folder)
        self._adds_special, self._skips_special = False, True

    def encode(self, text: str | bytes) -> np.ndarray:
        """Return int32 tokens of a text, without what stands before each text unless ``add_special_tokens`` is set.

        Raises:
            TypeError: it is neither a text nor its UTF-8.
            InvalidGeneration: it has half a pair of surrogates, or is no UTF-8.
        """
        if isinstance(text, bytes):
            try:
                text = text.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InvalidGeneration(f"the text is no UTF-8: {error}") from error
        if not isinstance(text, str):
            raise TypeError(f"encode() takes a text, not {type(text).__name__}")
        return np.array(self.text.encode(text, has_special=self._adds_special), np.int32)

    def encode_batch(self, texts: Sequence[str]) -> object:
        """Return a ``Tensor`` of int32 tokens (texts, longest), padded behind.

        Raises:
            InvalidGeneration: there are no texts.
        """
        from ort_genai.tensors import Tensor

        if not texts:
            raise InvalidGeneration("EncodeBatch: input strings must not be empty")
        rows = [self.encode(text) for text in texts]
        longest = max((len(row) for row in rows), default=0)
        found = np.full((len(rows), longest), self.pad_token_id, np.int32)
        for place, row in enumerate(rows):
            found[place, : len(row)] = row
        return Tensor(found)

    def decode(self, tokens: object) -> str:
        """Return the text of tokens."""
        found = numbers("decode()", "tokens", tokens)
        return self.text.decode(found.reshape(-1).tolist(), skips_special=self._skips_special)

    def decode_batch(self, tokens: object) -> list[str]:
        """Return the texts of rows of tokens."""
        if isinstance(tokens, list):  # rows of different lengths
            return [self.decode(row) for row in tokens]
        return [self.decode(row) for row in np.atleast_1d(numbers("decode_batch()", "tokens", tokens))]

    def create_stream(self) -> TokenizerStream:
        """Return a stream of text."""
        return TokenizerStream(TextStream(self.text, skips_special=self._skips_special))

    def apply_chat_template(
        self,
        messages: str,
        *,
        template_str: str | None = None,
        tools: str | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the text of a conversation; messages and tools are JSON.

        Raises:
            InvalidGeneration: they are none, or the template fails.
        """
        for name, value in (("messages", messages), ("tools", tools), ("template_str", template_str)):
            demand("apply_chat_template()", name, "" if value is None and name != "messages" else value, str)
        listed, described = _json(messages, "messages"), _json(tools, "tools") if tools else None
        return self.text.chat(listed, template=template_str, tools=described, is_answered=add_generation_prompt)

    def to_token_id(self, token: str) -> int:
        """Return the number of a token, -1 where there is none."""
        found = self.text.library.token_to_id(token)
        return -1 if found is None else found

    def update_options(self, **options: str) -> None:
        """Set ``add_special_tokens`` or ``skip_special_tokens`` to ``"true"`` or ``"false"``.

        Raises:
            InvalidGeneration: there is no such option, or its value is another.
        """
        for name, value in options.items():
            if name not in _OPTIONS:
                raise InvalidGeneration(f"Invalid tokenizer option key: {name}; there are {', '.join(_OPTIONS)}")
            if str(value).lower() not in ("true", "false", "1", "0"):
                raise InvalidGeneration(f"tokenizer option {name} = {value!r}, expected 'true' or 'false'")
            is_set = str(value).lower() in ("true", "1")
            if name == "add_special_tokens":
                self._adds_special = is_set
            else:
                self._skips_special = is_set

    @property
    def bos_token_id(self) -> int:
        """The token that begins a text."""
        return self._config.number("bos_token_id")

    @property
    def eos_token_ids(self) -> np.ndarray:
        """The tokens that end a text, int32."""
        return np.array(self._config.end_tokens, np.int32)

    @property
    def bor_token_id(self) -> int:
        """The token that begins a thought."""
        return self._marked("bor_token_id")

    @property
    def eor_token_id(self) -> int:
        """The token that ends a thought."""
        return self._marked("eor_token_id")

    @property
    def bot_token_id(self) -> int:
        """The token that begins a call of a tool."""
        return self._marked("bot_token_id")

    @property
    def eot_token_id(self) -> int:
        """The token that ends a call of a tool."""
        return self._marked("eot_token_id")

    def _marked(self, name: str) -> int:
        found = self._config.model.get(name)
        if isinstance(found, bool) or not isinstance(found, int):
            raise InvalidGeneration(f"{name} is not defined for this model")
        return found

    @property
    def pad_token_id(self) -> int:
        """The token that fills rows."""
        return self._config.number("pad_token_id")


class TokenizerStream:
    """onnxruntime-genai's stream: ``decode`` gives what a token completes."""

    def __init__(self, stream: TextStream) -> None:
        self._stream = stream

    def decode(self, token: int) -> str:
        """Return what a further token adds to the text."""
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise TypeError(f"decode() of a stream takes a token, not {type(token).__name__}")
        return self._stream.push(int(token))


def _marks(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return a character for each name, of a private plane and not in the text."""
    free = (chr(code) for code in range(0xF0000, 0xFFFFE) if chr(code) not in text)
    return dict(zip(names, free, strict=False))


def _replaced(value: Any, marks: Mapping[str, str]) -> Any:  # Any: JSON
    """Return what JSON holds with names replaced in all texts, and in names of fields that no template reads."""
    if isinstance(value, str):
        for name, mark in marks.items():
            value = value.replace(name, mark)
        return value
    if isinstance(value, Mapping):
        return {
            key if not isinstance(key, str) or key.isidentifier() else _replaced(key, marks): _replaced(each, marks)
            for key, each in value.items()
        }
    return [_replaced(each, marks) for each in value] if isinstance(value, list | tuple) else value


def _config_of(source: object) -> Config:
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"a Tokenizer is made of a Model, a Config or a folder, not of {type(source).__name__}")
    return Config(source)


def _json(text: str, what: str) -> list[Message]:
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidGeneration(f"{what} are no JSON: {error}") from error
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InvalidGeneration(f"{what} must be a list of objects")
    return found


def _tokenizer_config(folder: Path) -> dict[str, object]:
    file = folder / "tokenizer_config.json"
    return read_json(file) if file.is_file() else {}


def _template(folder: Path, config: Mapping[str, object]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = config.get("chat_template")
    if isinstance(found, list):  # several by name
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None
