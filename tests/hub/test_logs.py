"""Logs and metrics: what is told of a request, and what never is."""

import base64
import io
import json
import logging
import os
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from hub_server import logs, tokens
from hub_server.app import create_app
from hub_server.redaction import redacted


@pytest.fixture
def log():
    return io.BytesIO()


@pytest.fixture
def logged(hub, log):
    with TestClient(create_app(hub=hub, log_file=log), "https://hub.test", raise_server_exceptions=False) as client:
        yield client


def lines(log):
    return [json.loads(line) for line in log.getvalue().splitlines()]


def test_a_request_is_one_line_that_says_who_what_and_how_long(logged, log, world):
    ada = world.user("ada")
    logged.get("/api/v1/accounts/ada?x=1", headers=ada.headers)
    (line,) = lines(log)
    assert (line["event"], line["level"], line["method"], line["path"]) == (
        "request",
        "info",
        "GET",
        "/api/v1/accounts/ada",
    )
    assert (line["query"], line["status"], line["who"], line["address"]) == ("x=1", 200, "ada", "testclient")
    assert line["ms"] > 0 and line["bytes"] > 10 and len(line["id"]) == 16 and line["at"].endswith("Z")


def test_an_answer_to_a_failure_names_its_line(logged, log):
    answer = logged.get("/api/v1/accounts/nobody").json()
    assert lines(log)[0]["id"] == answer["request_id"] and lines(log)[0]["status"] == 404


def test_probes_and_scrapes_are_not_logged(logged, log):
    logged.get("/healthz")
    logged.get("/healthz/ready")
    logged.get("/metrics")
    assert lines(log) == []


def test_item_38_a_token_is_in_no_log_and_no_answer_wherever_it_was_put(logged, log, world):
    token = world.user("ada").token
    quoted = [
        logged.get(f"/api/v1/accounts/{token}"),
        logged.get(f"/{token}/simple/"),
        logged.get(f"/api/v1/whoami?token={token}"),
        logged.get(f"/api/v1/projects?search={token}"),
        logged.get("/api/v1/whoami", headers={"Authorization": f"Bearer {token}"}),
        logged.get("/api/v1/whoami", headers={"Authorization": f"Token {token}"}),
        logged.post("/api/v1/users", json={"name": token}),
        logged.post("/api/v1/device", json={"client_name": "x", "scope": token}),
    ]
    assert len(lines(log)) == len(quoted)
    assert token[12:] not in log.getvalue().decode()
    assert all(token[12:] not in answer.text for answer in quoted)


SECRET = tokens.make().text


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"https://__token__:{SECRET}@hub.example/ada/simple/",
        "https://ada:hunter2hunter2@hub.example/",
        "postgresql+psycopg://hub:hunter2hunter2@db/hub",
        "Authorization: Basic aHVudGVyMmh1bnRlcjI6",
        "authorization=Bearer hunter2hunter2",
        "?password=hunter2hunter2&x=1",
        '{"password": "hunter2hunter2"}',
        "{'api_key': 'hunter2hunter2'}",
        f"device_code={tokens.make('vfd_').text}",
        f"cookie: __Host-vf-hub={tokens.make('vfs_').text}",
    ],
    ids=range(11),  # the secrets are others in every process
)
def test_item_38_secrets_are_hidden_in_whatever_is_written(text):
    hidden = redacted(f"before {text} after")
    assert "hunter2" not in hidden and SECRET[12:] not in hidden and "aHVudGVyMm" not in hidden
    assert "***" in hidden and hidden.startswith("before ") and len(hidden) < len(text) + 20


@pytest.mark.parametrize(
    "text", ["GET /ada/math-env/simple/", "a token of scope read", "ada@example.org wrote", "keyboard: yes"]
)
def test_other_text_stays_as_it_is(text):
    assert redacted(text) == text


@given(st.text(alphabet="x&=\"' /:@?", max_size=20), st.text(alphabet="x&=\"' /:@?", max_size=20))
def test_a_token_is_found_between_any_neighbours(before, after):
    assert SECRET[4:] not in redacted(before + SECRET + after)


def test_lines_stay_json_after_redaction(log):
    logs.logger("INFO", log).info(
        "x", note='password="hunter2" and "quotes"', basic=base64.b64encode(b"a:b" * 9).decode()
    )
    logs.logger("INFO", log).info("y", nested={"url": "https://a:hunter2@b", "n": 1}, many=["password=hunter2", None])
    first, second = lines(log)
    assert "hunter2" not in first["note"] + str(second)
    assert second["nested"]["n"] == 1


def test_what_a_library_logs_has_the_same_shape_and_no_secrets():
    formatter = logs.LibraryLines()
    record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "bad header %s", (f"Bearer {SECRET}",), None)
    line = json.loads(formatter.format(record))
    assert (line["level"], line["logger"]) == ("warning", "uvicorn.error")
    assert SECRET[12:] not in line["event"]


# Metrics


def scrape(client, headers):
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in answer.text.splitlines() if line[0] != "#"
    }


def test_metrics_count_requests_by_route_and_never_by_name(logged, world):
    root = world.user("root", is_admin=True)
    world.release("root/math-env")
    before = scrape(logged, root.headers)
    for name in ("ada", "bob", "root"):
        logged.get(f"/api/v1/accounts/{name}")
        logged.get(f"/{name}/math-env/simple/")
    logged.request("BREW", "/nothing/at/all/there")
    after = scrape(logged, root.headers)

    def more(method, route, status):
        key = f'vf_hub_requests_total{{method="{method}",route="{route}",status="{status}"}}'
        return after[key] - before.get(key, 0)

    assert more("GET", "/api/v1/accounts/{owner}", 404) == 2
    assert more("GET", "/api/v1/accounts/{owner}", 200) == 1
    assert more("GET", "/{owner}/{env}/simple/", 404) == 3
    assert more("other", "none", 404) == 1
    assert after["vf_hub_projects"] == 1 and after["vf_hub_file_bytes"] > 1000
    assert not any("math-env" in name or "bob" in name for name in after)


def test_metrics_are_for_administrators(client, world):
    ada, root = world.user("ada"), world.user("root", is_admin=True)
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers=ada.headers).status_code == 403
    assert client.get("/metrics", headers={"Authorization": f"Bearer {world.token('root', 'read')}"}).is_success
    assert client.get("/metrics", headers=root.headers).is_success


def test_metrics_of_several_processes_are_added_up(tmp_path):
    program = textwrap.dedent(
        """
        import sys
        from hub_server import metrics
        for _ in range(int(sys.argv[1])):
            metrics.count_request("GET", "/simple/", 200, 0.01)
        if len(sys.argv) > 2:
            from pathlib import Path
            from hub_server.hub import Hub
            from hub_server.settings import Settings
            hub = Hub.open(Settings(data=Path(sys.argv[2])))
            print(metrics.exposition(hub).decode())
            hub.close()
        """
    )
    shared = tmp_path / "metrics"
    shared.mkdir()
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(shared)}
    for arguments in (["3"], ["4", str(tmp_path / "hub")]):
        command = [sys.executable, "-c", program, *arguments]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert 'vf_hub_requests_total{method="GET",route="/simple/",status="200"} 7.0' in out
    assert "vf_hub_projects 0.0" in out
