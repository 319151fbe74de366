"""A server of a tiny model in a thread, and what asks it."""

from __future__ import annotations

import socket
import threading
import time

import openai
import uvicorn
from genai_built import built_wide

import ort_genai as og
from ort_genai.server.app import ServerOptions, application

MESSAGES = [{"role": "user", "content": "the thin man"}]


class Serving:
    """A server in a thread, on a port of its own."""

    def __init__(self, **options) -> None:
        self.engine = og.AsyncEngine(og.Model(built_wide()))
        made = application(self.engine, ServerOptions("tiny", **options))
        self.routes = made.router.routes
        self.page = next(each.endpoint for each in self.routes if each.path == "/")
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(made, log_level="warning", ws="none"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]})
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    def client(self, key="none"):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=60)


def answer(client, **more):
    """Return the answer of a chat, without chance unless asked for."""
    options = {"model": "tiny", "messages": MESSAGES, "max_tokens": 12, "temperature": 0, **more}
    return client.chat.completions.create(**options)
