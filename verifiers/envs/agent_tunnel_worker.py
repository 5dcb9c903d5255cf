"""The sandbox's end of an agent's tunnel: an HTTP server on its loopback that hands requests to its stdout.

Run as a program, with nothing but the standard library of Python 3.7 or later. A line of JSON on stdout is a request
(`id`, `method`, `path`, `key`, `body`), the port (`port`), or the news that whoever asked has hung up (`gone`). A line
on stdin is an answer: `id`, `status`, `type`, `body`. It ends when its stdin does.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY = 32 << 20  # bytes
WATCH_S = 0.25  # how often it looks whether the asker is still there


class Waiting:
    def __init__(self):
        self.answered = threading.Event()
        self.answer = {}


_waiting: dict[int, Waiting] = {}
_lock = threading.Lock()  # guards the dict above, the count and stdout
_count = itertools.count(1)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._pass_on()

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, format, *args):
        pass

    def _pass_on(self):
        body = self._body()
        if body is None:
            return
        waiting = Waiting()
        number = next(_count)
        request = {
            "id": number,
            "method": self.command,
            "path": self.path,
            "key": self.headers.get("Authorization") or "",
            "body": body.decode("utf-8", "replace"),
        }
        with _lock:
            _waiting[number] = waiting
            say(request)
        while not waiting.answered.wait(WATCH_S):
            if self._is_gone():
                with _lock:
                    del _waiting[number]
                    say({"gone": number})
                self.close_connection = True
                return
        answer = waiting.answer
        self._answer(answer["status"], answer["type"], answer["body"].encode())

    def _body(self):
        """`None`: it was refused."""
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            return self._chunks()
        length = self.headers.get("Content-Length") or "0"
        if not length.isdigit() or int(length) > MAX_BODY:
            return self._refuse()
        return self.rfile.read(int(length))

    def _chunks(self):
        parts, size = [], 0
        while True:
            length = int(self.rfile.readline(100).split(b";")[0].strip() or b"0", 16)
            size += length
            if size > MAX_BODY:
                return self._refuse()
            parts.append(self.rfile.read(length))
            if not self.rfile.readline(100).strip() and length == 0:
                return b"".join(parts)

    def _refuse(self):
        self.close_connection = True
        error = {"message": f"a request of at most {MAX_BODY} bytes is taken", "type": "invalid_request_error"}
        self._answer(413, "application/json", json.dumps({"error": error}).encode())

    def _is_gone(self):
        try:
            if not select.select([self.connection], [], [], 0)[0]:
                return False
            return not self.connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def _answer(self, status, kind, body):
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # whoever asked has hung up
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self):
        """Without a look-up of the machine's own name, which may take seconds where there is no network."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request, client_address):
        pass


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main():
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with _lock:
        say({"port": server.server_port})
    for line in sys.stdin:
        answer = json.loads(line)
        with _lock:
            waiting = _waiting.pop(answer["id"], None)
        if waiting is not None:
            waiting.answer = answer
            waiting.answered.set()
    os._exit(0)


if __name__ == "__main__":
    main()
