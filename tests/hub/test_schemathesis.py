"""Schemathesis against a hub that is served: its answers are those that /api/v1/openapi.json describes."""

import os
import subprocess
from pathlib import Path

import hub_servers
import pytest
from hub_evaluations import pusher
from hub_packages import Package

PROGRAM = os.environ.get("VF_TEST_SCHEMATHESIS")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="VF_TEST_SCHEMATHESIS does not name the program")
HOOKS = Path(hub_servers.__file__).with_name("hub_schemathesis_hooks.py")
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance",
)  # fmt: skip
BUDGET_S = 75
# What would end the rest: the token in use, and what it is asked about. `test_openapi_fuzz.py` calls these too.
ENDS = (
    "DELETE /tokens/current", "DELETE /tokens/{token_id}", "DELETE /projects/{owner}/{name}",
    "DELETE /projects/{owner}/{name}/versions/{version}", "DELETE /evaluations/{evaluation_id}",
    "POST /projects/{owner}/{name}/transfer", "PATCH /users/{name}",
)  # fmt: skip


def config(known: dict[str, list[str]]) -> str:
    """What stands in an address means something nine times out of ten, so that most requests get behind the door."""
    lines = []
    for name, words in known.items():
        lines += [f"[dictionaries.{name}]", f"values = {words!r}"]
    lines += ["[parameters]"]
    lines += [f'"path.{name}" = {{ dictionary = "{name}", probability = 0.9 }}' for name in known]
    return "\n".join(lines)


@pytest.mark.timeout(BUDGET_S + 210)
def test_a_served_hub_answers_as_its_description_says(world, client, hub, tmp_path: Path):
    ada = world.user("ada", is_admin=True)
    world.user("bob")
    world.organisation("lab", ada="owner", bob="reader")
    world.release("ada/sums", visibility="public", package=Package("sums"))
    world.release("ada/sums", "2.0.0", package=Package("sums", "2.0.0"))
    pushed = pusher(world, client, ada, "ada/sums")
    runs = [pushed.push([[1.0, 0.0], [None, 0.5]]), pushed.push([[0.0], [1.0]])]
    known = {
        "owner": ["ada"], "name": ["sums"], "organisation": ["lab"], "user": ["bob"], "version": ["1.0.0", "2.0.0"],
        "evaluation_id": runs, "candidate_id": runs,
    }  # fmt: skip
    (tmp_path / "schemathesis.toml").write_text(config(known))
    plenty = str(1_000_000)
    settings = {"searches_per_minute": plenty, "evaluations_per_hour": plenty, "uploads_per_hour": plenty}
    if hub.settings.database_url is not None:
        settings["database_url"] = hub.settings.database_url
    with hub_servers.served(hub.settings.data, **settings) as server:
        command = [str(PROGRAM), "--config-file", str(tmp_path / "schemathesis.toml"), "--no-color", "run"]
        command += [f"{server.address}/api/v1/openapi.json", "--url", f"{server.address}/api/v1"]
        command += ["--header", f"Authorization: Bearer {ada.token}", "--checks", ",".join(CHECKS)]
        command += ["--seed", "1", "--generation-database", "none", "--continue-on-failure", "--warnings", "off"]
        command += ["--max-time", str(BUDGET_S), "--max-examples", "25", "--request-timeout", "20"]
        command += [word for name in ENDS for word in ("--exclude-name", name)]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS)}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=BUDGET_S + 180
        )
    assert done.returncode == 0, done.stdout[-30_000:] + done.stderr[-5_000:]
