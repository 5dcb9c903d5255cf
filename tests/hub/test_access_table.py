"""Item 37: every route × every role, on a private environment. A route without a row here fails the first test.

What one may not see answers word for word as what is not there. `lab/secret-env` is private; the organisation `lab` has
an owner, a maintainer and a reader; a stranger has an account and nothing else; `elsewhere` is the owner's own token,
made for another environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hub_evaluations import Pusher, lines, pusher, record
from hub_packages import Package
from hub_routes import Known, all_routes, filled
from hub_world import World, bearer
from sqlalchemy import select
from starlette.testclient import TestClient

from hub_server.app import create_app
from hub_server.hub import Hub
from hub_server.models import File
from hub_server.settings import Settings

Role = Literal["nobody", "stranger", "elsewhere", "reader", "maintainer", "owner", "admin"]
ROLES: tuple[Role, ...] = ("nobody", "stranger", "elsewhere", "reader", "maintainer", "owner", "admin")
PROJECT = "/api/v1/projects/{owner}/{name}"
EVALUATION = "/api/v1/evaluations/{evaluation_id}"


@dataclass(frozen=True)
class Row:
    """Who gets in, beginning with whom; and what the others are told."""

    first: Role | None  # the lowest role that may; None: everybody, since nothing here belongs to an environment
    others: str = "hidden"  # as if it were not there; `signed-in`: nobody is told 401 and the others 403
    body: Any = None
    query: str = ""
    values: tuple[tuple[str, str], ...] = ()  # what stands for a parameter here and not elsewhere
    names_nothing: bool = False  # answers everybody, and names the environment only to those who may see it
    only: bool = False  # not for higher roles either: it is one person's


READ = Row("reader")
LIST = Row(None, names_nothing=True)
OPEN = Row(None)
OWN = Row(None, others="signed-in")  # about oneself: nobody is 401
ADMIN = Row("admin", others="signed-in")


def maintainers(body: Any = None) -> Row:
    return Row("maintainer", body=body)


def owners(body: Any = None) -> Row:
    return Row("owner", body=body)


def form(**fields: str) -> bytes:
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    ]
    return "".join([*parts, "--x--\r\n"]).encode()


TABLE: dict[str, Row] = {
    # the package index
    "GET /{owner}/{env}/simple/": READ,
    "GET /{owner}/{env}/simple/{name}/": READ,
    "GET /{owner}/{env}/files/{sha256:sha256}/{filename}": READ,
    "GET /{owner}/simple/": LIST,
    "GET /simple/": LIST,
    "GET /{owner}/simple/{name}/": READ,
    "GET /simple/{name}/": OPEN,  # the hub's own package only
    "GET /files/{sha256:sha256}/{filename}": OPEN,  # likewise
    # redirects to the addresses above, and hints to the right method: they look at nothing
    **{f"GET {path}": OPEN for path in ("/simple", "/simple/{name}", "/{owner}/simple", "/{owner}/simple/{name}")},
    **{f"GET {path}": OPEN for path in ("/{owner}/{env}/simple", "/{owner}/{env}/simple/{name}")},
    **{
        f"{method} {path}": OPEN
        for method in ("POST", "PUT", "PATCH", "DELETE")
        for path in ("/simple/{rest:path}", "/{owner}/simple/{rest:path}", "/{owner}/{env}/simple/{rest:path}")
    },
    **{
        f"{method} {path}": OPEN
        for method in ("GET", "PUT", "PATCH", "DELETE")
        for path in ("/legacy/", "/{owner}/legacy/")
    },
    "POST /legacy": OPEN,
    "POST /{owner}/legacy": OPEN,
    # uploads: who may publish what is known when the file is there (test_upload.py)
    "POST /legacy/": Row(None, others="signed-in", body=b"--x--"),
    "POST /{owner}/legacy/": Row(None, others="signed-in", body=b"--x--"),
    # environments
    "GET /api/v1/projects": LIST,
    "GET /api/v1/facets": LIST,
    f"GET {PROJECT}": READ,
    f"GET {PROJECT}/versions": READ,
    f"GET {PROJECT}/versions/{{version}}": READ,
    f"GET {PROJECT}/versions/{{version}}/files": READ,
    f"GET {PROJECT}/versions/{{version}}/files/{{path:path}}": READ,
    f"GET {PROJECT}/diff": Row("reader", query="?from=1.0.0&to=1.1.0&base=1.0.0&other=1.1.0&old=1.0.0&new=1.1.0"),
    f"GET {PROJECT}/lineage": READ,
    f"GET {PROJECT}/used-by": READ,
    f"GET {PROJECT}/install": READ,
    f"GET {PROJECT}/settings": READ,
    f"GET {PROJECT}/collaborators": READ,
    f"GET {PROJECT}/validations": READ,
    f"GET {PROJECT}/evaluations": READ,
    f"GET {PROJECT}/leaderboard": READ,
    f"GET {PROJECT}/pass-rates": READ,
    f"PUT {PROJECT}/stars": READ,
    f"DELETE {PROJECT}/stars": READ,
    f"PUT {PROJECT}/status": maintainers({"status": "deprecated"}),
    f"POST {PROJECT}/releases": maintainers({"version": "2.0.0"}),
    f"PUT {PROJECT}/versions/{{version}}/yank": maintainers({"reason": "wrong"}),
    f"DELETE {PROJECT}/versions/{{version}}/yank": maintainers(),
    f"POST {PROJECT}/versions/{{version}}/validations": maintainers(),
    f"DELETE {PROJECT}/versions/{{version}}": owners(),
    f"PATCH {PROJECT}/settings": owners({"publish_answers": False}),
    f"PUT {PROJECT}/visibility": owners({"visibility": "private"}),
    f"POST {PROJECT}/transfer": owners({"to": "other"}),
    f"DELETE {PROJECT}": owners(),
    f"PUT {PROJECT}/collaborators/{{user}}": owners({"role": "reader"}),
    f"DELETE {PROJECT}/collaborators/{{user}}": owners(),
    # a release that is not final yet is known to whoever began it alone (test_releases.py)
    f"GET {PROJECT}/releases/{{release_id}}": Row("owner", only=True),
    f"PUT {PROJECT}/releases/{{release_id}}/files/{{filename}}": Row("owner", only=True),
    f"POST {PROJECT}/releases/{{release_id}}/finalize": Row("owner", only=True),
    f"DELETE {PROJECT}/releases/{{release_id}}": Row("owner", only=True),
    # evaluations: this one is for all who have a role on the environment
    f"POST {PROJECT}/evaluations": Row("reader", body={"idempotency_key": "run-0a1b2c3d", "model": "m", "dirty": True}),
    f"GET {EVALUATION}": READ,
    f"GET {EVALUATION}/samples": READ,
    f"GET {EVALUATION}/examples": READ,
    f"GET {EVALUATION}/rollouts/{{example_id}}/{{rollout_index}}": READ,
    f"GET {EVALUATION}/compare/{{candidate_id}}": READ,
    f"GET {EVALUATION}/verification": READ,
    f"POST {EVALUATION}/verification": maintainers(),
    f"POST {EVALUATION}/samples": Row("owner", only=True),
    f"POST {EVALUATION}/complete": Row("owner", body={}, only=True),
    f"PUT {EVALUATION}/visibility": Row("owner", body={"visibility": "project"}, only=True),
    f"DELETE {EVALUATION}": owners(),
    # organisations, accounts
    "GET /api/v1/organisations/{organisation}/members": Row("reader", others="signed-in"),
    "PUT /api/v1/organisations/{organisation}/members/{user}": Row(
        "owner", others="signed-in", body={"role": "reader"}
    ),
    "DELETE /api/v1/organisations/{organisation}/members/{user}": Row("owner", others="signed-in"),
    "PATCH /api/v1/accounts/{owner}": Row("owner", others="signed-in", body={"about": "x"}),
    "GET /api/v1/accounts/{owner}": OPEN,
    "GET /api/v1/organisations": OWN,
    "POST /api/v1/organisations": Row(None, others="signed-in", body={"name": "new-lab"}),
    "GET /api/v1/stars": Row(None, others="signed-in", names_nothing=True),
    "GET /api/v1/tokens": OWN,
    "POST /api/v1/tokens": Row(None, others="signed-in", body={"name": "laptop"}),
    "DELETE /api/v1/tokens/current": OWN,
    "DELETE /api/v1/tokens/{token_id}": OWN,
    "PUT /api/v1/password": Row(None, others="signed-in", body={"old": "x", "new": "y"}),
    "GET /api/v1/whoami": OWN,
    "GET /api/v1/audit": Row("owner", others="signed-in", query="?owner=lab"),
    "GET /api/v1/device/{user_code}": OWN,
    "POST /api/v1/device/{user_code}/allow": OWN,
    "POST /api/v1/device/{user_code}/deny": OWN,
    "POST /api/v1/device": OPEN,
    "POST /api/v1/device/token": OPEN,
    "GET /api/v1/users": ADMIN,
    "POST /api/v1/users": Row("admin", others="signed-in", body={"name": "newcomer"}),
    "PATCH /api/v1/users/{name}": Row(
        "admin", others="signed-in", body={"is_active": True}, values=(("name", "stranger"),)
    ),
    # pages: what they show is what the API tells
    "GET /": LIST,
    "GET /search": LIST,
    "GET /docs": OPEN,
    "GET /static/{hash}/{name}": OPEN,
    "GET /compare": OPEN,  # leads to the comparison, which looks
    "GET /{owner}": LIST,
    **{
        f"GET /{{owner}}/{{env}}{tab}": READ
        for tab in (
            "",
            "/versions",
            "/source",
            "/source/{version}",
            "/source/{version}/{path:path}",
            "/results",
            "/settings",
        )
    },
    "GET /{owner}/{env}/diff": Row("reader", query="?old=1.0.0&new=1.1.0"),
    "POST /{owner}/{env}/star": Row("reader", body=form(to="on")),
    "POST /{owner}/{env}/change": Row("owner", body=form(do="visibility", visibility="private")),
    **{
        f"GET /evaluations/{{evaluation_id}}{tab}": READ
        for tab in (
            "",
            "/rollouts/{example_id:number}/{rollout_index:number}",
            "/compare/{candidate_id}",
            "/compare/{candidate_id}/{example_id:number}",
        )
    },
    "GET /evaluations/{evaluation_id}/rollouts/{example_id:number}/{rollout_index:number}/text/{part}": Row(
        "reader", values=(("part", "messages.0.content"),)
    ),
    "POST /evaluations/{evaluation_id}/change": Row("owner", body=form(visibility="project"), only=True),
    "GET /login": OPEN,
    "POST /login": OPEN,
    "POST /logout": OPEN,
    **{f"{method} /{page}": OWN for method in ("GET", "POST") for page in ("login/device", "tokens", "account")},
    "GET /audit": OWN,
    "GET /organisations/{organisation}": Row("reader", others="signed-in"),
    "POST /organisations/{organisation}": Row(
        "owner", others="signed-in", body=form(do="set", user="friend", role="reader")
    ),
    # the hub itself
    "GET /healthz": OPEN,
    "GET /healthz/ready": OPEN,
    "GET /metrics": Row("admin", others="signed-in"),
}


@dataclass(frozen=True)
class Scene:
    """The environment's hub, the people, and what stands for each parameter of a path."""

    client: TestClient
    values: dict[str, str]
    headers: dict[Role, dict[str, str]]

    def ask(self, route: Known, row: Row, role: Role, **values: str) -> Any:
        path = filled(route.path, **(self.values | dict(row.values) | values)) + row.query
        headers = self.headers[role]
        sent: dict[str, Any] = {} if row.body is None else {"json": row.body}
        if isinstance(row.body, bytes):
            sent = {"content": row.body}
            headers = headers | {"Content-Type": "multipart/form-data; boundary=x"}
        return self.client.request(route.method, path, headers=headers, follow_redirects=False, **sent)


def built(hub: Hub, client: TestClient) -> Scene:
    world = World(hub)
    people = {name: world.user(name, is_admin=name == "admin") for name in ROLES[1:] if name != "elsewhere"}
    world.user("friend")
    world.organisation("lab", owner="owner", maintainer="maintainer", reader="reader", friend="reader")
    world.project("lab/secret-env", friend="reader")
    world.organisation("other", owner="owner", admin="owner")
    package = Package("secret-env", summary="hush")
    world.release("lab/secret-env", package=package, tags=("hush",))
    world.release("lab/secret-env", "1.1.0", package=Package("secret-env", "1.1.0", summary="hush"), tags=("hush",))
    world.release("owner/open-env", visibility="public")
    push = pusher(world, client, people["owner"], "lab/secret-env")
    begun = client.post(
        "/api/v1/projects/lab/secret-env/releases", json={"version": "3.0.0"}, headers=people["owner"].headers
    )
    with hub.database.read() as session:
        wheel = session.scalar(select(File).where(File.filename == package.wheel_name))
    values = {
        "owner": "lab", "name": "secret-env", "env": "secret-env", "organisation": "lab", "user": "friend",
        "version": "1.0.0", "path": "secret_env.py", "sha256": wheel.sha256, "filename": wheel.filename,
        "evaluation_id": pushed(push), "candidate_id": pushed(push), "example_id": "0", "rollout_index": "0",
        "release_id": begun.json()["id"], "token_id": "999999", "user_code": "BCDF-GHJK", "rest": "x",
    }  # fmt: skip
    headers: dict[Role, dict[str, str]] = {
        "nobody": {},
        "elsewhere": bearer(world.token("owner", project="owner/open-env")),
        **{name: person.headers for name, person in people.items()},
    }
    return Scene(client, values, headers)


def pushed(push: Pusher) -> str:
    """A complete evaluation of one sample, for whoever has a role on the environment."""
    id = push.begin(visibility="project")["id"]
    push.send(id, lines([record(wheel=push.wheel, env="secret-env")]))
    push.complete(id)
    return id


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[tuple[Hub, TestClient]]:
    hub = Hub.open(Settings(data=folder, allowed_hosts=("hub.test",), validation=True, rescoring=True))
    with TestClient(create_app(hub=hub), "https://hub.test", raise_server_exceptions=False) as client:
        yield hub, client
    hub.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Scene]:
    """Built once; each test that changes something has a copy of its own."""
    folder = tmp_path_factory.mktemp("table") / "hub"
    with opened(folder) as (hub, client):
        return folder, built(hub, client)


@pytest.fixture(scope="module")
def reading(stage: tuple[Path, Scene]) -> Iterator[Scene]:
    """For all that change nothing."""
    folder, scene = stage
    with opened(folder) as (_, client):
        yield dataclasses.replace(scene, client=client)


@pytest.fixture
def scene(key: str, stage: tuple[Path, Scene], reading: Scene, tmp_path: Path) -> Iterator[Scene]:
    if key.startswith("GET "):
        yield reading
        return
    folder, scene = stage
    shutil.copytree(folder, tmp_path / "hub")
    with opened(tmp_path / "hub") as (_, client):
        yield dataclasses.replace(scene, client=client)


def test_item_37_every_route_has_a_row(app):
    found = {f"{route.method} {route.path}" for route in all_routes(app)}
    assert found - set(TABLE) == set(), "say in TABLE who may ask this"
    assert set(TABLE) - found == set(), "there is no such route"


@pytest.mark.parametrize("key", TABLE)
def test_item_37_who_sees_and_does_what(scene, key):
    row = TABLE[key]
    method, _, path = key.partition(" ")
    route = Known(path, method)
    is_done = False  # the first who may: after a deletion the others find nothing
    for role in ROLES:
        answer = scene.ask(route, row, role)
        said = f"{role}: {answer.status_code} {answer.text[:200]}"
        assert answer.status_code < 500, said
        if row.first is None:
            assert row.others != "signed-in" or (answer.status_code == 401) == (role == "nobody"), said
        elif ROLES.index(role) < ROLES.index(row.first):
            check_refused(scene, route, row, role, answer, said)
        elif not is_done:
            assert answer.status_code not in (401, 403, 404), said
            is_done = True
        else:
            assert answer.status_code not in (401, 403) or row.only, said
        if row.names_nothing:
            assert ("secret-env" in answer.text) <= (role in ("reader", "maintainer", "owner", "admin")), said
            assert "hush" not in answer.text or role in ("reader", "maintainer", "owner", "admin"), said


def check_refused(scene: Scene, route: Known, row: Row, role: Role, answer: Any, said: str) -> None:
    if row.others == "signed-in":
        assert answer.status_code == (401 if role == "nobody" else 403), said
    elif role in ("reader", "maintainer"):
        assert answer.status_code in ((403, 404) if row.only else (403,)), said
    else:
        if row is READ and route.method == "GET" and role != "elsewhere":
            assert answer.status_code == 404, said  # so that installers go on, and try again with what they have
        assert answer.status_code in ((401, 404) if role == "nobody" else (403, 404)), said
        assert_is_as_if_missing(scene, route, row, role, answer)


def assert_is_as_if_missing(scene: Scene, route: Known, row: Row, role: Role, answer: Any) -> None:
    """Word for word but for the names that were asked for."""
    others = {"name": "no-such-env", "env": "no-such-env", "sha256": "0" * 64, "evaluation_id": "0" * 32}
    missing = scene.ask(route, row, role, **others)

    def text(found: Any) -> str:
        body = found.text
        for name in (
            "no-such-env",
            "secret-env",
            "0" * 64,
            scene.values["sha256"],
            "0" * 32,
            scene.values["evaluation_id"],
        ):
            body = body.replace(name, "…")
        return re.sub(r'"request_id":"[0-9a-f]+"', "", body)

    assert missing.status_code == answer.status_code
    assert text(missing) == text(answer)
    ignored = {"content-length"}
    assert {k: v for k, v in missing.headers.items() if k not in ignored} == {
        k: v for k, v in answer.headers.items() if k not in ignored
    }
