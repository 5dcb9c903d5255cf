"""An in-process counterpart of a container engine's HTTP API, for what a real engine does not do when asked.

It keeps containers and programs as data. A program prints its own command line and ends with 0, unless `plays` says
otherwise. `faults` holds what happens to the next calls of a kind: a status, or "hang up".
"""

import asyncio
import json
import re
import struct
from collections import defaultdict
from urllib.parse import parse_qs, unquote, urlsplit

INFO = {
    "MemoryLimit": True, "SwapLimit": True, "PidsLimit": True, "CpuCfsQuota": True, "CgroupVersion": "2",
    "DefaultRuntime": "runc", "Runtimes": {"runc": {}}, "SecurityOptions": ["name=seccomp,profile=builtin"],
}  # fmt: skip


class CounterpartEngine:
    """Docker by default; `is_podman` makes it the other."""

    def __init__(self, path=None, *, is_podman: bool = False) -> None:
        self.path = path  # None: a port instead
        self.version = {"Version": "1.2.3", "Components": [{"Name": "Podman Engine" if is_podman else "Engine"}]}
        self.info = dict(INFO)
        self.images = {"here:1"}
        self.registry: dict[str, list[dict]] = {}  # image → what pulling it says
        self.line_s = 0.0  # between two lines of a pull
        self.containers: dict[str, dict] = {}
        self.programs: dict[str, dict] = {}
        self.faults: dict[str, list] = defaultdict(list)
        self.calls: list[str] = []
        self.plays = play
        self._tasks: set[asyncio.Task] = set()

    @property
    def host(self) -> str:
        if self.path is None:
            return f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return f"unix://{self.path}"

    async def __aenter__(self):
        if self.path is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        else:
            self._server = await asyncio.start_unix_server(self._serve, str(self.path))
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split(None, 2)
            size = re.search(r"(?i)content-length: (\d+)", head)
            body = await reader.readexactly(int(size[1])) if size else b""
            await self._answer(method, urlsplit(target), json.loads(body or b"null"), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._tasks.discard(asyncio.current_task())

    async def _answer(self, method, url, body, reader, writer):
        path, query = unquote(url.path), {name: values[0] for name, values in parse_qs(url.query).items()}
        kind = method + " " + re.sub(r"/(containers|exec)/(?!create|json)[^/]+", r"/\1/*", path)
        self.calls.append(kind)
        fault = self.faults[kind].pop(0) if self.faults[kind] else None
        if fault == "hang up":
            return
        if fault is not None:
            return reply(writer, fault, {"message": f"made up: {fault}"})
        if kind == "POST /images/create":
            return await self._pull(query["fromImage"], writer)
        if kind == "POST /exec/*/start":
            return await self._start(path.split("/")[2], reader, writer)
        status, answer = self._plain(kind, path, query, body)
        return reply(writer, status, answer)

    def _plain(self, kind, path, query, body):
        name = path.split("/")[2] if path.count("/") > 1 else ""
        container = next((one for one in self.containers.values() if name in (one["Id"], one["Name"])), None)
        if kind == "GET /version":
            return 200, self.version
        if kind == "GET /info":
            return 200, self.info
        if kind.startswith("GET /images/"):
            image = path.removeprefix("/images/").removesuffix("/json")
            return (200, {"Id": image}) if image in self.images else (404, {"message": "no such image"})
        if kind == "POST /containers/create":
            if any(one["Name"] == query["name"] for one in self.containers.values()):
                return 409, {"message": "the name is in use"}
            number = f"{len(self.calls):064x}"
            self.containers[number] = {
                "Id": number, "Name": query["name"], "Config": body, "Labels": body["Labels"],
                "State": {"Status": "created", "Running": False, "OOMKilled": False},
            }  # fmt: skip
            return 201, {"Id": number}
        if kind == "GET /containers/json":
            wanted = [label.partition("=") for label in json.loads(query["filters"])["label"]]
            return 200, [
                one
                for one in self.containers.values()
                if all(one["Labels"].get(key) == value or (not is_said and key in one["Labels"])
                       for key, is_said, value in wanted)
            ]  # fmt: skip
        if kind == "GET /exec/*/json":
            return 200, self.programs[name]
        if container is None:
            return 404, {"message": "no such container"}
        if kind == "POST /containers/*/start":
            container["State"] = {"Status": "running", "Running": True, "OOMKilled": False}
            return 204, None
        if kind == "POST /containers/*/exec":
            number = f"{len(self.calls):064x}"
            self.programs[number] = {"Running": False, "ExitCode": 0, "Container": container["Id"], **body}
            return 201, {"Id": number}
        if kind == "DELETE /containers/*":
            del self.containers[container["Id"]]
            return 204, None
        return 200, container

    async def _pull(self, image, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
        for line in self.registry.get(image, [{"error": f"manifest of {image} unknown"}]):
            await asyncio.sleep(self.line_s)
            writer.write(json.dumps(line).encode() + b"\r\n")
            await writer.drain()
        if image in self.registry:
            self.images.add(image)

    async def _start(self, number, reader, writer):
        writer.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
        command = self.programs[number]["Cmd"]
        if "AttachStdin" not in self.programs[number]:  # the one that ends another
            return
        mark = b"\x1e" + (await reader.readline()).strip()
        await self.plays(self, Stage(mark, command[6:], reader, writer))


class Stage:
    """Where a program plays: what it gets and what it may say."""

    def __init__(self, mark, argv, reader, writer):
        self.mark, self.argv, self.reader, self.writer = mark, argv, reader, writer

    def say(self, stream: int, data: bytes) -> None:
        self.writer.write(struct.pack(">BxxxI", stream, len(data)) + data)

    def begin(self) -> None:
        self.say(2, self.mark + b"77\n")

    def end(self, code: int = 0, ooms: int = 0) -> None:
        self.say(1, self.mark)
        self.say(2, self.mark + b"%d %d 0 1048576 0m0.0s 0m0.0s\n0m1.25s 0m0.25s\n\x1e" % (code, ooms))


async def play(engine: CounterpartEngine, stage: Stage) -> None:
    stage.begin()
    stage.say(1, " ".join(stage.argv).encode())
    stage.end()


def reply(writer, status, answer):
    body = b"" if answer is None else json.dumps(answer).encode()
    writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
