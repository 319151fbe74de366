"""The page talks to the model, in a headless browser where there is one."""

from __future__ import annotations

import asyncio
import html
import re
import shutil
import subprocess

import pytest
from starlette.responses import HTMLResponse
from starlette.routing import Route
from test_server import Serving

from ort_genai.engine.requests import GenerationOptions

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ASKING = """<script>
  const message = document.getElementById("text");
  message.value = "the thin <b>man</b>";
  message.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
</script><img src="/ended">"""  # the browser shows the page when its picture is there: when the answer has ended


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_message_is_answered_on_the_page(tmp_path):
    serving = Serving(temperature=0.0, max_tokens=12)

    async def asked(request):
        page = (await serving.page(request)).body.decode()
        return HTMLResponse(page.replace("</html>", ASKING + "</html>"))

    async def ended(_):
        while not (counts := serving.engine.current_counts()).tokens or counts.running or counts.waiting:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)  # until the browser has read what is on its way
        return HTMLResponse("")

    serving.routes += [Route("/asked", asked), Route("/ended", ended)]
    try:
        found = subprocess.run(
            [
                BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}",
                "--dump-dom", serving.url + "/asked",
            ],
            capture_output=True, text=True, check=True, timeout=300,
        ).stdout  # fmt: skip
        engine = serving.engine
        prompt = engine.model.text.chat_tokens([{"role": "user", "content": "the thin <b>man</b>"}])
        expected = engine.submit(prompt, GenerationOptions(max_tokens=12)).text()
    finally:
        serving.close()
    shown = re.findall(r'<div class="message (\w+)">(.*?)</div>', found, re.DOTALL)
    assert [(kind, html.unescape(text)) for kind, text in shown] == [
        ("user", "the thin <b>man</b>"), ("assistant", expected)
    ]  # fmt: skip
