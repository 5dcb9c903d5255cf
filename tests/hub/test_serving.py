"""`vf-hub` as a program of its own: serve, fsck, gc, and what it says when something is not as it must be."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hub_world import World
from waiting import Standstill

from hub_server.hub import Hub
from hub_server.settings import Settings

PROGRAM = [sys.executable, "-m", "hub_server.cli"]
WAIT_S = 90.0  # of a machine that does much else
STOP_S = 15.0  # less than what a request that hangs would be waited for


def ran(*words, status=0, timeout=WAIT_S, **settings):
    done = subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, env=with_settings(settings), timeout=timeout
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def with_settings(settings):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("VF_HUB_")}
    return {**clean, **{f"VF_HUB_{name.upper()}": value for name, value in settings.items()}}


class Serving:
    """A hub that was started by the real command."""

    def __init__(self, *words, **settings):
        self.process = subprocess.Popen(
            [*PROGRAM, "serve", "--port", "0", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=with_settings(settings),
            start_new_session=True,
        )
        self.said = b""
        self.logged = b""  # of a hub that ended
        self.port = 0
        try:
            self._wait_for_address()
        except BaseException:
            self.end()
            raise

    def _wait_for_address(self):
        assert self.process.stdout and self.process.stderr
        while not (found := re.search(rb"http://127\.0\.0\.1:(\d+)", self.said)):
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read().decode()
            self.said += line
        self.port = int(found[1])
        self._log = threading.Thread(target=self._read_log, daemon=True)  # a full pipe would stop the server
        self._log.start()

    def _read_log(self):
        assert self.process.stderr
        self.logged = self.process.stderr.read()

    def get(self, path="/healthz", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def stop(self, number=signal.SIGTERM):
        """The exit status, after all that it printed was read."""
        assert self.process.stdout
        self.process.send_signal(number)
        status = self.process.wait(WAIT_S)
        self.said += self.process.stdout.read()
        self._log.join(WAIT_S)
        return status

    def end(self):
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()


@pytest.fixture
def serving(tmp_path):
    """Starts hubs on one data folder, and leaves none behind."""
    started = []

    def start(*words, **settings):
        started.append(Serving("--data", str(tmp_path / "data"), *words, **settings))
        return started[-1]

    yield start
    for one in started:
        one.end()


def workers_of(server):
    """The processes below the one that was started that are servers."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    return {int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def test_an_empty_folder_becomes_a_hub(serving):
    server = serving("--owner", "ada")
    assert server.get()[0] == 200
    assert server.get("/healthz/ready")[0] == 200
    assert server.stop() == 0


def test_the_first_account_and_its_token_are_printed_once_and_work(serving):
    first = serving("--owner", "ada")
    assert first.get()[0] == 200
    assert first.stop() == 0
    (token,) = set(re.findall(rb"vfh_\w+", first.said))
    assert b"first account: ada" in first.said

    second = serving("--owner", "ada")
    status, body = second.get("/api/v1/whoami", Authorization=f"Bearer {token.decode()}")
    assert status == 200 and json.loads(body)["name"] == "ada"
    assert second.stop() == 0
    assert b"vfh_" not in second.said and b"first account" not in second.said


def test_a_request_is_one_line_of_the_log_whoever_serves_it(serving):
    server = serving("--owner", "ada")
    assert [server.get("/simple/")[0] for _ in range(3)] == [200, 200, 200]
    assert server.stop() == 0
    about = [json.loads(line) for line in server.logged.splitlines() if b"/simple/" in line]
    assert [(line["event"], line["path"], line["status"]) for line in about] == [("request", "/simple/", 200)] * 3


def test_two_workers_answer_over_one_hub_and_all_end_together(serving):
    server = serving("--owner", "ada", "--workers", "2")
    assert server.get()[0] == 200
    until = time.monotonic() + WAIT_S
    while len(workers := workers_of(server)) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert len(workers) == 2
    # With the first stopped, the kernel gives what it does not accept to the other: each must answer alone.
    for stopped in workers:
        os.kill(server.process.pid, signal.SIGSTOP)  # which would replace a worker that does not answer it
        os.kill(stopped, signal.SIGSTOP)
        try:
            assert answers(server)
        finally:
            os.kill(stopped, signal.SIGCONT)
            time.sleep(0.2)
            os.kill(server.process.pid, signal.SIGCONT)
    began = time.monotonic()
    with Standstill() as standstill:
        assert server.stop() == 0
    assert time.monotonic() - began - standstill.longest_s < STOP_S
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=60).close()


def answers(server):
    """Some of several requests at once are taken by whoever runs; those that a stopped process took wait for it."""
    answered = threading.Event()

    def ask():
        with suppress(OSError):
            if server.get()[0] == 200:
                answered.set()

    for _ in range(8):
        threading.Thread(target=ask, daemon=True).start()
    return answered.wait(60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_that_runs_when_the_hub_is_told_to_stop_is_answered(serving, number):
    server = serving("--owner", "ada")
    assert server.get()[0] == 200
    token = first_token(server)
    body = b'{"name": "lab"}'
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S)
    head = (
        f"POST /api/v1/organisations HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    connection.sendall(head.encode())
    assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")  # the server has the request now, and wants its body
    connection.sendall(body[:5])
    server.process.send_signal(number)
    time.sleep(0.5)
    connection.sendall(body[5:])
    answer = connection.recv(65536)
    connection.close()
    assert answer.startswith(b"HTTP/1.1 201"), answer
    assert server.process.wait(WAIT_S) == 0


def first_token(server):
    assert server.process.stdout
    while not (found := re.search(rb"vfh_\w+", server.said)):
        server.said += server.process.stdout.readline()
    return found[0].decode()


def test_a_port_that_is_taken_is_one_line_and_status_3(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = ran("serve", "--data", str(tmp_path / "data"), "--port", str(port), status=3)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr


@pytest.mark.parametrize(
    ("settings", "words", "said"),
    [
        ({"storage_url": "memory://"}, ["--workers", "2"], "a hub in memory has one worker"),
        ({"storage_url": "ftp://x"}, [], "no storage of the hub: 'ftp://x'"),
        ({"max_samples": "many"}, [], "VF_HUB_MAX_SAMPLES: Input should be a valid integer"),
        ({"allowed_hosts": "hub.example"}, [], "VF_HUB_ALLOWED_HOSTS: a list is written as JSON"),
        ({"log_level": "loud"}, [], "VF_HUB_LOG_LEVEL: Input should be 'DEBUG'"),
        ({"database_url": "nonsense"}, [], "the hub's database cannot be used: Could not parse"),
        ({"database_url": "postgresql://127.0.0.1:1/hub"}, [], "the hub's database cannot be used: connection failed"),
        ({}, ["--owner", "no such name"], "no such name"),
    ],
)
def test_what_keeps_the_hub_from_starting_is_one_line_and_status_3(tmp_path, settings, words, said):
    done = ran("serve", "--port", "0", "--data", str(tmp_path / "data"), *words, status=3, **settings)
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and said in line
    assert "vfh_" not in done.stdout


def test_workers_that_cannot_load_the_hub_are_not_started_for_ever(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "file"))  # where figures of workers are added up
    done = ran("serve", "--port", "0", "--data", str(tmp_path / "data"), "--workers", "2", status=3)
    (line,) = done.stderr.splitlines()
    assert "the hub cannot be loaded" in line and str(tmp_path / "file") in line
    assert "vfh_" not in done.stdout


def test_a_data_folder_that_is_a_file_is_one_line_and_status_3(tmp_path):
    (tmp_path / "file").write_text("")
    for command in (["serve", "--port", "0"], ["fsck"], ["gc"], ["user", "list"]):
        done = ran(*command, "--data", str(tmp_path / "file"), status=3)
        assert len(done.stderr.splitlines()) == 1 and str(tmp_path / "file") in done.stderr


def test_a_misspelt_setting_is_told_and_those_of_clients_are_not(tmp_path):
    done = ran("gc", "--data", str(tmp_path / "data"), databse_url="x", url="http://127.0.0.1:1", token="vfh_x")
    assert "VF_HUB_DATABSE_URL" in done.stderr and "VF_HUB_URL" not in done.stderr and "VF_HUB_TOKEN" not in done.stderr


# fsck and gc


@pytest.fixture
def data(tmp_path):
    """A hub with one release, which nobody has open."""
    hub = Hub.open(Settings(data=tmp_path / "data"))
    world = World(hub)
    world.user("ada")
    world.release("ada/math-env")
    hub.close()
    return tmp_path / "data"


def stored(data):
    return sorted(path for path in (data / "files" / "files").rglob("*") if path.is_file())


def test_fsck_of_a_sound_hub_finds_nothing_and_ends_with_0(data):
    found = json.loads(ran("fsck", "--json", "--data", str(data)).stdout)
    assert found == {"problems": [], "files": 3, "orphans": 0, "orphan_bytes": 0, "repaired": 0}
    assert ran("fsck", "--data", str(data)).stdout.startswith("3 files read, 0 problems")


def test_item_36_one_flipped_bit_is_found_and_fsck_ends_with_1(data):
    path = stored(data)[0]
    path.chmod(0o644)
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    found = json.loads(ran("fsck", "--repair", "--json", "--data", str(data), status=1).stdout)
    assert [(problem["kind"], problem["subject"]) for problem in found["problems"]] == [("hash", f"files/{path.name}")]


def test_a_missing_file_is_found_and_fsck_ends_with_1(data):
    path = stored(data)[1]
    path.unlink()
    said = ran("fsck", "--data", str(data), status=1).stdout
    assert f"missing: files/{path.name}" in said


def test_gc_removes_old_orphans_only(data):
    hub = Hub.open(Settings(data=data))
    hub.storage.put("files/" + "0" * 64, b"of an upload that just runs")
    hub.storage.put("files/" + "1" * 64, b"old")
    hub.close()
    old = next((data / "files" / "files").rglob("1" * 64))
    os.utime(old, (1, 1))
    swept = json.loads(ran("gc", "--json", "--data", str(data)).stdout)
    assert swept == {"files": 1, "bytes": 3, "parts": 0, "staged": 0, "evaluations": 0}
    assert not old.exists() and next((data / "files" / "files").rglob("0" * 64)).exists()
    assert json.loads(ran("fsck", "--json", "--data", str(data)).stdout)["orphans"] == 1


def test_a_worker_with_nothing_to_do_says_which_settings_give_it_work(data):
    assert "VF_HUB_VALIDATION" in ran("worker", "--once", "--data", str(data), status=3).stderr


def test_users_and_tokens_are_commands_of_the_program(data):
    token = ran("token", "create", "ada", "--data", str(data)).stdout.strip()
    assert token.startswith("vfh_")
    assert [user["name"] for user in json.loads(ran("user", "list", "--json", "--data", str(data)).stdout)] == ["ada"]


# What is written about it


REPOSITORY = Path(__file__).parents[2]


def test_every_setting_is_documented_with_its_default():
    page = (REPOSITORY / "docs/hub-hosting.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(VF_HUB_\w+)` \| (.+?) \|", page, re.M))
    assert set(rows) == {f"VF_HUB_{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        if field.default is not None:
            default = field.default if isinstance(field.default, str) else str(field.default)
            if not isinstance(field.default, str | Path):
                default = json.dumps(field.default).removesuffix(".0")
            assert rows[f"VF_HUB_{name.upper()}"] == f"`{default}`"


def test_the_image_takes_what_is_there_and_does_not_run_as_root():
    lines = (REPOSITORY / "deploy/hub/Containerfile").read_text().splitlines()
    copied = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert copied and all((REPOSITORY / word).exists() for word in copied)
    assert "USER 10001" in lines and lines.index("USER 10001") < next(
        place for place, line in enumerate(lines) if line.startswith("ENTRYPOINT")
    )


def test_the_composition_sets_only_what_there_is():
    composed = yaml.safe_load((REPOSITORY / "deploy/hub/compose.yaml").read_text())["services"]
    named = {name for name in composed["hub"]["environment"] if name.startswith("VF_HUB_")}
    assert named and named <= {f"VF_HUB_{name.upper()}" for name in Settings.model_fields}
    assert (REPOSITORY / composed["hub"]["build"]["dockerfile"]).is_file()
    assert all("healthcheck" in composed[other] for other in composed["hub"]["depends_on"])
