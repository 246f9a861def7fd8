"""A real browser: the trade of the token, and what a page of one server may do to another one beside it.

Needs Chromium on PATH (Debian: ``apt-get install chromium``).
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from mcpiac.local.proxy_rules import Route

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH")

ATTACK = """<!doctype html><title>page</title><body><script>
const other = 'http://127.0.0.1:OTHER';
function frame(url) {
  return new Promise(done => {
    const made = document.createElement('iframe');
    made.onload = () => setTimeout(done, 500);
    made.src = url;
    document.body.append(made);
  });
}
function image(url) {
  return new Promise(done => { const made = new Image(); made.onload = made.onerror = done; made.src = url; });
}
(async () => {
  const told = {};
  told.token = location.href.includes('_token');
  told.cookie = document.cookie;
  told.own = (await fetch('/own')).status;
  await frame(other + '/?_token=OTHERTOKEN');
  told.post = await fetch(other + '/post', {method: 'POST', mode: 'no-cors', credentials: 'include', body: 'x'}).then(
    answer => answer.type, error => 'error');
  told.get = await fetch(other + '/get', {mode: 'no-cors', credentials: 'include'}).then(
    answer => answer.type, () => 'error');
  told.read = await fetch(other + '/read', {credentials: 'include'}).then(answer => answer.status, () => 'error');
  await image(other + '/image');
  await frame(other + '/framed');
  document.title = 'told';
  const out = document.createElement('pre');
  out.textContent = 'TOLD' + JSON.stringify(told) + 'TOLD';
  document.body.append(out);
})();
</script>"""


def server(seen: list[bytes], page: str) -> Any:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                seen.append(head)
                body = page.encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nSet-Cookie: own=1\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    return handle


def test_two_servers_side_by_side_in_one_browser(proxied: Any, tmp_path: Path) -> None:
    async def conversation(world: Any) -> None:
        first_seen: list[bytes] = []
        second_seen: list[bytes] = []
        listens = [proxied.free_port(), proxied.free_port()]
        page = ATTACK.replace("OTHERTOKEN", "second-token").replace("OTHER", str(listens[1]))
        first = await asyncio.start_server(server(first_seen, page), "127.0.0.1", 0)
        second = await asyncio.start_server(server(second_seen, "<p>second"), "127.0.0.1", 0)
        for made, listen, token in ((first, listens[0], b"first-token"), (second, listens[1], b"second-token")):
            await world.proxy.open(Route("sandbox", made.sockets[0].getsockname()[1], listen, token))
        browser = await asyncio.create_subprocess_exec(
            str(CHROMIUM),
            *("--headless=new", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"),
            *(("--no-sandbox",) if os.geteuid() == 0 else ()),
            *(f"--user-data-dir={tmp_path}", "--timeout=20000", "--virtual-time-budget=15000", "--dump-dom"),
            f"http://127.0.0.1:{listens[0]}/?a=1&_token=first-token",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        )
        dumped, _ = await browser.communicate()
        first.close()
        second.close()
        found = re.search(r"TOLD(\{.*\})TOLD", dumped.decode())
        assert found, dumped.decode()[:2000]
        told = found[1].replace("&quot;", '"')
        assert '"token":false' in told  # the address bar has no token any more
        assert '"cookie":"own=1"' in told  # ours is HttpOnly
        assert '"own":200' in told
        assert '"read":"error"' in told
        assert first_seen[0].startswith(b"GET /?a=1 HTTP/1.1\r\n")
        # The second server's own page was shown in the frame; nothing that the first one's page tried came through.
        paths = [head.split(b" ")[1] for head in second_seen]
        assert paths.count(b"/") == 1
        assert not {b"/post", b"/get", b"/read", b"/image", b"/framed"} & set(paths)
        for head in first_seen + second_seen:
            assert b"__sbx_auth" not in head
            assert b"token" not in head

    proxied.run(conversation, deadline=90)
