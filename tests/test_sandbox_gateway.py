"""Sandboxes over HTTP: what a gateway promises beside the contract that all backends keep."""

import asyncio
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gateways import TOKEN, GatewayProcess
from waiting import steady, until

from verifiers.errors import ConfigError, SandboxError, SetupError
from verifiers.sandbox import RemoteBackend, SandboxLimits, SandboxSpec, open_backend
from verifiers.sandbox.gateway_tokens import Tokens

OTHER = "another-token-for-tests"
NEW = "the-first-ones-new-token"


@pytest.fixture(scope="module")
def gateway():
    with GatewayProcess.scripted(
        "max_body_bytes=3 << 20, beat_s=0.2, max_limits=SandboxLimits(wall_s=9, memory_mb=64)",
        (f"one {TOKEN}", f"one {NEW}", OTHER),
    ) as started:
        yield started


@pytest.fixture
async def remote(gateway):
    async with RemoteBackend(gateway.url, TOKEN) as backend:
        yield backend


def http(url: str, path: str, body: bytes | None = b"{}", token: str | None = TOKEN):
    """Status, headers and JSON, without a client of ours."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url + path, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=100) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            said = error.read()
            return error.code, error.headers, json.loads(said)["error"] if said.startswith(b"{") else said


# Who may do what


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1]])
def test_a_wrong_token_is_refused_and_says_nothing(gateway, token):
    for path in ("/v1/offer", "/v1/status", "/v1/sandboxes/x/exec", "/nothing"):
        status, headers, error = http(gateway.url, path, token=token)
        assert (status, headers["WWW-Authenticate"], error["kind"]) == (401, "Bearer", "unauthorized")


async def test_a_wrong_token_is_a_mistake_of_setting_up(gateway):
    async with RemoteBackend(gateway.url, "wrong-token-of-tests") as backend:
        with pytest.raises(SetupError, match="VF_SANDBOX_TOKEN"):
            await backend.capabilities()
        with pytest.raises(SetupError):
            await backend.create()


async def test_each_token_sees_its_own_sandboxes_alone(gateway, remote):
    async with RemoteBackend(gateway.url, OTHER) as stranger, await remote.create(SandboxSpec(run_id="r")) as sandbox:
        await sandbox.write_file("a", b"x")
        assert sandbox.id in (await remote.status()).sandboxes
        assert sandbox.id not in (await stranger.status()).sandboxes
        assert not (await stranger.status([sandbox.id])).sandboxes[sandbox.id].alive
        for path in ("exec", "read", "write", "pack", "unpack"):
            body = (30).to_bytes(4, "big") + b'{"path":"a","command":"echo"}   '[:30]
            status, _, error = http(gateway.url, f"/v1/sandboxes/{sandbox.id}/{path}", body, OTHER)
            assert (status, error["kind"]) == (404, "unknown")
        assert http(gateway.url, "/v1/close", json.dumps({"ids": [sandbox.id]}).encode(), OTHER)[2] == b'{"ids":[]}'
        assert await stranger.close_run("r") == 0
        assert await sandbox.read_file("a") == b"x"


async def test_the_same_key_of_two_tokens_names_two_sandboxes(gateway, remote):
    spec = SandboxSpec(key="k")
    async with RemoteBackend(gateway.url, OTHER) as stranger, await remote.create(spec) as one:
        assert (await stranger.create(spec)).id != one.id


async def test_tokens_of_one_name_see_the_same_sandboxes(gateway, remote):
    async with RemoteBackend(gateway.url, NEW) as renewed, await remote.create() as sandbox:
        assert (await renewed.status()).sandboxes[sandbox.id].alive


def test_tokens_that_are_none_are_refused():
    for lines in ([], ["# nothing", ""]):
        with pytest.raises(ConfigError, match="no token"):
            Tokens(lines)
    with pytest.raises(ConfigError, match="at least 16") as refused:
        Tokens(["name short-secret"])
    assert "short-secret" not in str(refused.value)
    assert Tokens([f"me {TOKEN}"]).owner_of(f"bearer {TOKEN}") == "me"
    assert Tokens([TOKEN]).owner_of(TOKEN) is None  # without the word before it


def test_nothing_of_a_token_is_kept_or_shown():
    assert TOKEN not in repr(vars(Tokens([TOKEN])))
    assert TOKEN not in repr(RemoteBackend("http://x", TOKEN))


async def test_logs_have_no_token_and_nothing_of_programs_and_files(tmp_path):
    log = tmp_path / "log"
    with GatewayProcess.scripted(log=log) as gateway:
        async with RemoteBackend(gateway.url, TOKEN) as backend, await backend.create() as sandbox:
            await sandbox.write_file("private-name", b"private-content")
            with pytest.raises(SandboxError, match="ZeroDivisionError"):
                await sandbox.exec("break", stdin="private-stdin", env={"A": "private-variable"})
        http(gateway.url, "/v1/status", token="a-wrong-one-of-tests")
        assert gateway.end()[0] == 0
    said = log.read_text()
    assert "the sandbox backend failed by ZeroDivisionError" in said
    assert not any(word in said for word in (TOKEN, "a-wrong-one-of-tests", "private"))


# Errors


async def test_what_is_no_gateway_is_no_result(tmp_path):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, RemoteBackend(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", TOKEN) as backend:
        with pytest.raises(SandboxError, match="no Offer"):
            await backend.capabilities()
        with pytest.raises(SandboxError, match="no message"):
            await backend.run_once("print(1)")


async def test_errors_are_told_by_status_and_kind(gateway, remote):
    assert http(gateway.url, "/v1/status", b"{")[0] == 400
    assert http(gateway.url, "/v1/create", b"\0\0\0\1")[2]["kind"] == "config"
    assert http(gateway.url, "/v1/sandboxes/none/write", b"\0\0\0\2{}")[0] == 400
    status, _, error = http(gateway.url, "/v1/sandboxes/none/exec", b'\0\0\0\x10{"command":"ls"}')
    assert (status, error["kind"]) == (404, "unknown")
    assert http(gateway.url, "/v1/nothing")[0] == 404
    status, _, error = http(gateway.url, "/v1/create", bytes(4 << 20))
    assert (status, error["kind"], error["message"]) == (
        413,
        "too-large",
        "more than 3 MB are too much for one request",
    )


async def test_what_is_too_large_is_refused_in_both_directions(remote):
    async with await remote.create() as sandbox:
        with pytest.raises(SandboxError, match="more than 3 MB"):
            await sandbox.write_file("a", bytes(4 << 20))
        await sandbox.write_file("a", bytes(2 << 20))
        assert len(await sandbox.read_file("a")) == 2 << 20
        await sandbox.put_archive(await sandbox.get_archive("a"), "b")
        with pytest.raises(FileNotFoundError, match="nothing"):
            await sandbox.read_file("nothing")


async def test_an_error_of_the_gateways_machine_is_not_one_of_the_sandboxs_files(remote):
    async with await remote.create() as sandbox:
        with pytest.raises(SandboxError, match="FileNotFoundError"):
            await sandbox.exec("full")
        with pytest.raises(FileNotFoundError):
            await sandbox.read_file("full")
        with pytest.raises(OSError, match="escaped"):
            await sandbox.put_archive(leading_out(), "in")


def leading_out() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../../escaped"))
    return buffer.getvalue()


async def test_limits_are_the_gateways_at_most(remote):
    asked = SandboxSpec(limits=SandboxLimits(wall_s=100, memory_mb=32), lifetime_s=1e9)
    async with await remote.create(asked) as sandbox:
        assert (sandbox.spec.limits.wall_s, sandbox.spec.limits.memory_mb) == (9, 32)
        assert sandbox.spec.lifetime_s == 86_400
    with pytest.raises(SetupError, match="this gateway gives none"):
        await remote.create(SandboxSpec(limits=SandboxLimits(network=True)))
    assert (await remote.capabilities()).networks == ("none",)


async def test_a_gateway_that_is_not_there_is_no_result(unused_port=9):
    backend = RemoteBackend(f"http://127.0.0.1:{unused_port}", TOKEN)
    with pytest.raises(SandboxError, match="is not reached"):
        await backend.run_once("print(1)")
    await backend.close()


def test_a_backend_without_an_address_says_what_to_set(monkeypatch):
    monkeypatch.delenv("VF_SANDBOX_URL", raising=False)
    monkeypatch.delenv("VF_SANDBOX_TOKEN", raising=False)
    with pytest.raises(SetupError, match="VF_SANDBOX_URL"):
        asyncio.run(open_backend("remote").capabilities())
    monkeypatch.setenv("VF_SANDBOX_URL", "http://127.0.0.1:9")
    with pytest.raises(SetupError, match="VF_SANDBOX_TOKEN"):
        asyncio.run(open_backend("remote").capabilities())


# What is asked again, and what is not


class BrokenLine:
    """Passes requests on to a gateway, and breaks off the first answer to those of a path."""

    def __init__(self, url: str, path: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._path = path.encode()
        self.broken = 0

    @asynccontextmanager
    async def open(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = next((int(line.split()[1]) for line in head.lower().split(b"\r\n") if b"content-le" in line), 0)
                back.write(head + await reader.readexactly(size))
                answer = await there.read(1 << 20)  # it has begun to answer: what was asked for is done
                if self._path in head.split(b"\r\n")[0] and not self.broken:
                    self.broken += 1
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            back.close()


async def test_a_creation_that_is_asked_again_makes_one_sandbox(gateway, remote):
    line = BrokenLine(gateway.url, "/v1/create")
    before = len((await remote.status()).sandboxes)
    async with line.open() as url, RemoteBackend(url, TOKEN) as backend, await backend.create() as sandbox:
        assert line.broken == 1
        assert len((await remote.status()).sandboxes) == before + 1
        assert (await sandbox.exec("echo", stdin="x")).text == "x"


async def test_a_program_is_never_run_again(gateway):
    line = BrokenLine(gateway.url, "/exec")
    async with line.open() as url, RemoteBackend(url, TOKEN) as backend, await backend.create() as sandbox:
        with pytest.raises(SandboxError, match="may have run"):
            await sandbox.exec("count")
        assert await sandbox.read_file("runs") == b"x"
        again = await sandbox.exec("count")
        assert (again.text, again.attempts) == ("2", 1)


async def test_an_answer_that_takes_long_is_kept_alive_and_an_error_after_that_is_one(remote):
    async with await remote.create() as sandbox:
        assert (await sandbox.exec("sleep 0.7")).text == "slept"
        with pytest.raises(SandboxError, match="the engine is gone"):
            await sandbox.exec("lose 0.7")


# Leases


@steady(0.5)
async def test_a_sandbox_lives_while_its_client_does():
    with GatewayProcess.scripted("lease_s=3") as gateway:
        async with RemoteBackend(gateway.url, TOKEN) as backend, await backend.create() as sandbox:
            await asyncio.sleep(7)  # more than two leases
            assert (await backend.status([sandbox.id])).sandboxes[sandbox.id].alive
            assert (await sandbox.exec("echo", stdin="x")).text == "x"


async def test_a_sandbox_that_the_gateway_ended_is_closed_here_too():
    with GatewayProcess.scripted("lease_s=3") as gateway:
        async with RemoteBackend(gateway.url, TOKEN) as backend:
            sandbox = await backend.create(SandboxSpec(lifetime_s=0.5))
            await until(lambda: sandbox.is_closed)
            with pytest.raises(SandboxError, match="ended"):
                await sandbox.exec("echo")


CLIENT = """
import asyncio, sys
from verifiers.sandbox import RemoteBackend, SandboxLimits
async def main():
    backend = RemoteBackend(sys.argv[1], sys.argv[2])
    sandboxes = [await backend.create() for _ in range(3)]
    await sandboxes[0].exec(f"sleep {sys.argv[3]} & sleep {sys.argv[3]} & true")
    process = await sandboxes[1].open_process(["sleep", sys.argv[3]])
    print(*(sandbox.id for sandbox in sandboxes), flush=True)
    await sandboxes[2].exec(["sleep", sys.argv[3]], limits=SandboxLimits(wall_s=999))
asyncio.run(main())
"""


@steady(0.5)
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize("backend", ["local", "podman"])
async def test_a_client_that_is_killed_leaves_nothing(backend):
    options, variables = [], {}
    if backend == "podman":
        if "VF_TEST_CONTAINER_HOST" not in os.environ:
            pytest.skip("VF_TEST_CONTAINER_HOST names no podman")
        image = os.environ.get("VF_TEST_CONTAINER_IMAGE", "localhost/vf-test:1")
        options, variables = ["--image", image], {"CONTAINER_HOST": os.environ["VF_TEST_CONTAINER_HOST"]}
    mark = f"7{os.getpid()}.{time.monotonic_ns()}"  # seconds, which nobody else sleeps

    async def running():
        found = 0
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found += path.read_bytes() == f"sleep\0{mark}\0".encode()
            except OSError:
                pass
        return found

    try:
        flags = ["--port", "0", "--lease", "3", "--drain", "0", "--backend", backend, *options]
        gateway = GatewayProcess("serve", *flags, variables=variables)
    except SetupError as error:
        pytest.skip(str(error))
    with gateway:
        client = subprocess.Popen([sys.executable, "-c", CLIENT, gateway.url, TOKEN, mark], stdout=subprocess.PIPE)
        try:
            ids = client.stdout.readline().decode().split()
            async with RemoteBackend(gateway.url, TOKEN) as observer:

                async def all_run():
                    return await running() == 4

                await until(all_run)
                await asyncio.sleep(3.5)  # more than a lease
                assert all(one.alive for one in (await observer.status(ids)).sandboxes.values())
                client.kill()

                async def is_gone():
                    status = await observer.status()
                    return not status.sandboxes and status.free == status.places and not await running()

                await until(is_gone)
        finally:
            client.kill()
            client.communicate()


# Places


async def test_who_finds_it_full_waits_and_is_told_to_come_again():
    with GatewayProcess.scripted("max_sandboxes=2, queue_s=0.3") as gateway:
        async with RemoteBackend(gateway.url, TOKEN) as backend:
            first, second = await backend.create(), await backend.create()
            body = json.dumps({"creation": "x", "spec": {}}).encode()
            message = len(body).to_bytes(4, "big") + body
            status, headers, error = await asyncio.to_thread(http, gateway.url, "/v1/create", message)
            assert (status, headers["Retry-After"], error["kind"]) == (429, "1", "full")
            third = asyncio.create_task(backend.create())
            await asyncio.sleep(1)  # three times as long as the gateway lets it wait
            assert not third.done()
            await first.close()
            assert (await (await third).exec("echo", stdin="x")).ok
            impatient = RemoteBackend(gateway.url, TOKEN, patience_s=0.5)
            with pytest.raises(SandboxError, match="takes no more for now"):
                await impatient.run_once("print(1)")
            await impatient.close()
            await second.close()


async def test_who_is_told_late_comes_again_too():
    with GatewayProcess.scripted("max_sandboxes=1, queue_s=0.5, beat_s=0.1") as gateway:
        async with RemoteBackend(gateway.url, TOKEN) as backend:
            first = await backend.create()
            second = asyncio.create_task(backend.create())
            await asyncio.sleep(1)
            assert not second.done()
            await first.close()
            assert (await (await second).exec("echo", stdin="x")).ok


async def test_a_creation_that_nobody_waits_for_gives_its_place_back():
    with GatewayProcess.scripted("max_sandboxes=1, queue_s=5") as gateway:
        async with RemoteBackend(gateway.url, TOKEN) as backend:
            held = await backend.create()
            waiting = [asyncio.create_task(backend.create()) for _ in range(3)]

            async def all_wait():
                return (await backend.status()).waiting == 3

            await until(all_wait)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await held.close()

            async def all_free():
                status = await backend.status()
                return (status.free, status.waiting) == (1, 0)

            await until(all_free)
            async with await backend.create() as sandbox:
                assert (await sandbox.exec("echo", stdin="x")).ok


@steady(0.5)
async def test_warm_sandboxes_are_handed_out_and_made_again():
    with GatewayProcess.scripted("warm=2") as gateway:
        async with RemoteBackend(gateway.url, TOKEN) as backend:

            async def two_wait():
                return (await backend.status()).warm == 2

            await until(two_wait)
            async with await backend.create(SandboxSpec(files={"f": b"1"}, env={"A": "a"}, lifetime_s=4)) as sandbox:
                assert await sandbox.read_file("f") == b"1"
                assert (await sandbox.exec("echo", stdin="x")).text == "xa"
                assert (await sandbox.exec("echo", env={"A": "b"})).text == "b"
                await until(two_wait)
                await asyncio.sleep(4.2)  # its own lifetime, not that of the one in waiting
                with pytest.raises(SandboxError, match="ended"):
                    await sandbox.exec("echo")
            async with await backend.create(SandboxSpec(image="another")) as other:
                assert (await other.exec("echo", stdin="x")).ok


# The end


@steady(0.5)
async def test_a_gateway_that_is_told_to_end_lets_its_clients_finish():
    with GatewayProcess.scripted() as gateway:
        async with RemoteBackend(gateway.url, TOKEN, patience_s=0.5) as backend:
            sandbox = await backend.create()
            running = asyncio.create_task(sandbox.exec("sleep 3"))

            async def has_begun():
                return (await backend.status([sandbox.id])).sandboxes[sandbox.id].calls

            await until(has_begun, by=running)
            ended = asyncio.create_task(asyncio.to_thread(gateway.end))

            async def is_ending():
                return http(gateway.url, "/healthz", None, token=None)[0] == 503

            await until(is_ending)
            assert http(gateway.url, "/v1/create", b"\0\0\0\x1c" + b'{"creation":"x", "spec": {}}')[0] == 503
            with pytest.raises(SandboxError, match="takes no new sandboxes"):
                await backend.create()
            assert (await running).text == "slept"
            await sandbox.write_file("a", b"x")
            assert await sandbox.read_file("a") == b"x"
            await sandbox.close()
            assert await ended == (0, "")


async def test_a_gateway_does_not_wait_for_ever():
    with GatewayProcess.scripted("drain_s=0.5") as gateway:
        backend = RemoteBackend(gateway.url, TOKEN)
        sandbox = await backend.create()
        running = asyncio.create_task(sandbox.exec("sleep 250"))

        async def has_begun():
            return (await backend.status([sandbox.id])).sandboxes[sandbox.id].calls

        await until(has_begun, by=running)
        began = time.monotonic()
        code, said = await asyncio.to_thread(gateway.end)
        assert code == 0 and "1 sandbox(es) are still there" in said
        assert time.monotonic() - began < 100
        with pytest.raises(SandboxError):
            await running
        await backend.close()


# Processes


@steady(0.5)
async def test_output_of_a_read_that_was_cancelled_is_the_next_ones(remote):
    async with await remote.create() as sandbox:
        process = await sandbox.open_process("sleep 1.5")
        reading = asyncio.create_task(process.read(3))
        await asyncio.sleep(0.1)
        assert not reading.done()
        reading.cancel()
        assert [await process.read(3), await process.read(), await process.read()] == [b"sle", b"pt", b""]
        assert (await process.wait()).ok
        assert await process.read() == b""


async def test_a_process_that_cannot_be_had_says_so(remote):
    sandbox = await remote.create()
    process = await sandbox.open_process("echo")
    await process.close_stdin()
    with pytest.raises(SandboxError, match="stdin is closed"):
        await process.write(b"x")
    await sandbox.close()
    with pytest.raises(SandboxError, match=r"broke|ended"):
        await process.read()


# The command


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 3, "no token is given"),
        (["--token", "short"], 3, "take at least 16"),
        (["--token-file", "/nothing"], 3, "/nothing cannot be read"),
        (["--token", TOKEN, "--max-limits", '{"wall": 1}'], 2, "no limit wall"),
        (["--token", TOKEN, "--backend", "locl"], 3, "did you mean local?"),
        (["--token", TOKEN, "--backend", "remote"], 2, "a gateway to a gateway"),
        (["--token", TOKEN, "--host", "203.0.113.9"], 3, "cannot listen at 203.0.113.9:8077"),
    ],
)
def test_mistakes_take_one_line(arguments, code, told):
    env = {name: value for name, value in os.environ.items() if name != "VF_SANDBOX_TOKEN"}
    program = "from verifiers.cli.main import sandbox_main; sandbox_main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "serve", *arguments], capture_output=True, text=True, env=env, timeout=200
    )
    assert done.returncode == code
    assert told in done.stderr and len(done.stderr.splitlines()) == 1
    assert TOKEN not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
async def test_the_command_serves_tokens_of_a_file(tmp_path):
    (tmp_path / "tokens").write_text(f"# whoever\n\nme {TOKEN}\n")
    try:
        gateway = GatewayProcess("serve", "--port", "0", "--token-file", str(tmp_path / "tokens"), token=None)
    except SetupError as error:
        pytest.skip(str(error))
    with gateway:
        assert http(gateway.url, "/healthz", None, token=None)[::2] == (200, b"ok\n")
        async with RemoteBackend(gateway.url, TOKEN) as backend:
            assert (await backend.run_once("print(input())", stdin="x")).text == "x\n"
            async with await backend.create() as sandbox:
                data = os.urandom(5 << 20)
                await sandbox.write_file("in", data)
                assert await sandbox.read_file("in") == data
                counted = await sandbox.exec("wc -c", stdin=data)
                assert counted.text.strip() == str(5 << 20)
        assert gateway.end() == (0, "")
