"""A real server on this machine that stands where torchvision's mirrors stand, and can misbehave."""

from __future__ import annotations

import http.server
import sys
import time
from collections.abc import Callable
from pathlib import Path

from capsbench.data import raw

FIRST = "train-images-idx3-ubyte.gz"


class Mirror(http.server.ThreadingHTTPServer):
    """Serves `files`; `special` answers for a file in its own way. `asked` lists the files asked for."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.asked: list[str] = []
        self.special: dict[str, Callable[[Handler, bytes], None]] = {}
        self.address = f"http://127.0.0.1:{self.server_port}/"

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client that hangs up is part of the tests
            super().handle_error(request, client_address)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self):
        name = self.path.removeprefix("/")
        self.server.asked.append(name)
        self.server.special.get(name, Handler.send_whole)(self, self.server.files[name])

    def send_whole(self, content: bytes):
        self.send_head(len(content))
        self.wfile.write(content)

    def send_half(self, content: bytes):
        self.send_head(len(content))
        self.wfile.write(content[: len(content) // 2])

    def send_half_as_if_whole(self, content: bytes):
        self.send_whole(content[: len(content) // 2])

    def send_nothing(self, content: bytes):
        time.sleep(30)

    def send_404(self, content: bytes):
        self.send_error(404)

    def send_login_page(self, content: bytes):
        self.send_whole(b"<html>Welcome to the airport. Please log in.</html>")

    def send_head(self, length: int):
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_):
        pass


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def whole(name: str) -> list[str]:
    return sorted([name, f"{name}/raw", *(f"{name}/raw/{file}.gz" for file in raw.FILES)])
