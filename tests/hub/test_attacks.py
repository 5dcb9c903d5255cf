"""What a stranger, a curious member and a careless hand tried against the hub, and must not get."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hub_evaluations import lines, pusher, record
from hub_packages import Package
from hub_world import bearer
from sqlalchemy import insert, select
from starlette.testclient import TestClient

from hub_server.app import create_app
from hub_server.errors import TooMany
from hub_server.hub import Hub
from hub_server.limits import DEVICE_CODE
from hub_server.models import Account, Evaluation
from hub_server.services import devices
from hub_server.services.accounts import create_user
from hub_server.services.leaderboard import MOST_ROWS
from verifiers.records import Failure, Score

ORIGIN = {"Origin": "https://hub.test"}
HTML = {"Accept": "text/html,application/xhtml+xml"}
PASSWORD = "correct horse battery"


def names(hub) -> set[str]:
    with hub.database.read() as session:
        return set(session.scalars(select(Account.name)))


# Making users


@pytest.mark.parametrize("scope", ["read", "publish", "admin"])
def test_only_an_administrator_makes_users_by_the_form(client, world, hub, scope):
    world.user("eve")
    form = {"do": "user", "name": "mallory", "password": PASSWORD}
    answer = client.post("/account", data=form, headers=bearer(world.token("eve", scope)))
    assert answer.status_code == 403
    assert "mallory" not in names(hub)


def test_an_administrators_narrow_token_makes_no_users_by_the_form(client, world, hub):
    root = world.user("root", is_admin=True)
    form = {"do": "user", "name": "grace", "password": PASSWORD}
    assert client.post("/account", data=form, headers=bearer(world.token("root", "publish"))).status_code == 403
    assert "grace" not in names(hub)
    assert client.post("/account", data=form, headers=root.headers).status_code == 303
    assert "grace" in names(hub)


@pytest.mark.parametrize("do", [None, "", "organistaion"])
def test_a_form_that_names_no_deed_does_nothing(client, world, do):
    root = world.user("root", is_admin=True)
    world.user("grace")
    world.organisation("lab", root="owner")
    said = {} if do is None else {"do": do}
    for path, form in (
        ("/account", {"name": "grace"}),
        ("/organisations/lab", {"user": "grace", "role": "owner"}),
        ("/tokens", {"name": "laptop", "scope": "admin"}),
    ):
        assert client.post(path, data={**form, **said}, headers=root.headers).status_code == 422, path
    users = client.get("/api/v1/users", headers=root.headers).json()
    assert all(user["is_active"] for user in users)
    assert [one["name"] for one in client.get("/api/v1/organisations/lab/members", headers=root.headers).json()] == [
        "root"
    ]


# What is no number, no letter, no address


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/tokens", {"do": "revoke", "token": "²"}),
        ("/tokens", {"do": "revoke", "token": "9" * 30}),
        ("/tokens", {"do": "revoke", "token": "9" * 5_000}),
        ("/tokens", {"do": "create", "name": "x", "days": "²"}),
        ("/tokens", {"do": "create", "name": "x", "days": "9" * 400}),
        ("/account", {"do": "profile", "display_name": "a\0b"}),
    ],
)
def test_nonsense_in_a_form_is_refused(client, world, path, form):
    assert 400 <= client.post(path, data=form, headers=world.user("ada").headers).status_code < 500


@pytest.mark.parametrize("path", ["/login", "/account", "/tokens", "/login/device"])
def test_a_form_in_an_encoding_that_halves_letters_is_refused(client, world, path):
    parts = {"do": b"create", "name": b"ab+2AA-c", "password": b"x"}
    body = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value)
        for name, value in parts.items()
    )
    headers = {"Content-Type": "multipart/form-data; boundary=x; charset=utf-7"}
    answer = client.post(path, content=body + b"--x--\r\n", headers=world.user("ada").headers | headers)
    assert answer.status_code == 400


def cursor(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


@pytest.mark.parametrize(
    "path",
    [
        "/audit?after=%C2%B2",
        "/audit?after=" + "9" * 40,
        "/?after=" + cursor("updated", "9999-12-31T23:59:59-23:59", 1),
        "/?after=" + cursor("updated", "0001-01-01T00:00:00+23:59", 1),
        "/?sort=name&after=" + cursor("name", "\ud800", 1),
        "/search?q=%ED%A0%80",
        "/ada/sums/results?after=%ED%A0%80",
    ],
)
def test_no_address_of_a_list_is_a_mistake_of_the_hubs(client, world, path):
    ada = world.user("ada")
    pusher(world, client, ada)
    assert client.get(path, headers=ada.headers | HTML).status_code < 500


@pytest.mark.parametrize("number", ["9" * 19, "9" * 30, "9" * 5_000, "-" + "9" * 30, "²"])
def test_no_number_of_a_rollout_is_a_mistake_of_the_hubs(client, world, number):
    ada = world.user("ada")
    id = pusher(world, client, ada).push([[0.0, 1.0], [1.0, 1.0]])
    for path in (f"rollouts/{number}/0", f"rollouts/0/{number}", f"compare/{id}/{number}"):
        assert client.get(f"/evaluations/{id}/{path}", headers=ada.headers | HTML).status_code == 404, path


def test_a_rollout_of_a_negative_example_has_a_page(client, world):
    ada = world.user("ada")
    push = pusher(world, client, ada)
    id = push.begin()["id"]
    push.send(id, lines([record(-3, 0, wheel=push.wheel)]))
    push.complete(id)
    assert client.get(f"/evaluations/{id}/rollouts/-3/0", headers=ada.headers | HTML).status_code == 200


# Where an address leads, and what the hub says there


@pytest.mark.parametrize(
    "name", ["http:evil%252ecom", "https:evil%E3%80%82com", "a%0d%0aX-Evil:%20y", "x%5Cy%255c", "a%3Fb"]
)
@pytest.mark.parametrize("base", ["", "/ada", "/ada/sums"])
def test_the_index_leads_nowhere_else_and_writes_no_header_of_the_askers(client, base, name):
    for path in (f"{base}/simple/{name}", f"{base}/simple/{name.upper()}/"):
        answer = client.get(path)
        assert answer.status_code == 301
        (location,) = [value for key, value in answer.headers.raw if key == b"location"]
        target = location.removeprefix(b"../")
        assert not set(target) & set(b"\r\n:\\?") and target.count(b"/") == 1, location


def test_a_link_cannot_make_the_hub_say_something(client):
    answer = client.get("/?said=Your+account+is+locked", headers=HTML)
    assert "is locked" not in answer.text


def test_what_the_hub_says_after_a_form_is_said_once(client, world, hub):
    create_user(hub, "grace", PASSWORD)
    client.post("/login", data={"name": "grace", "password": PASSWORD}, headers=ORIGIN)
    form = {"do": "organisation", "name": "lab"}
    answer = client.post("/account", data=form, headers=ORIGIN)
    assert answer.headers["location"] == "/organisations/lab"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-vf-said=") and "HttpOnly" in cookie and "Secure" in cookie
    assert "lab is yours" in client.get("/organisations/lab", headers=HTML).text
    assert "lab is yours" not in client.get("/organisations/lab", headers=HTML).text


# Markup in what people and models write


class Tags(HTMLParser):
    """Every tag and attribute of a page that a payload would have made."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "xss":
            self.found.append(tag)
        for name, value in attrs:
            is_link = name in ("href", "src", "action", "formaction") and value
            if name.startswith("on") or name == "xss" or (is_link and str(value).lower().startswith("javascript")):
                self.found.append(f"{tag} {name}={value}")


EVIL = "\"'><xss onerror=x xss=1>{{77777*7}}"


def test_no_text_of_a_rollout_becomes_a_tag_anywhere(client, world):
    ada = world.user("ada")
    push = pusher(world, client, ada)
    image = {"type": "image_url", "image_url": {"url": "javascript:alert(1)"}}
    call = {"id": EVIL, "type": "function", "function": {"name": EVIL, "arguments": EVIL}}
    ids = []
    for _ in range(2):
        id = push.begin(model=EVIL, name=EVIL, library_version=EVIL[:40], run={"env_args": {EVIL: EVIL}})["id"]
        rows = [
            record(
                example, index, float(index), model=EVIL, wheel=push.wheel, text=EVIL, question=EVIL,
                stop_condition=EVIL, answer=EVIL, errors=[Failure(side="tool", type=EVIL, message=EVIL)],
                scores=[Score(name=EVIL, weight=1.0, value=float(index))], info={EVIL: EVIL},
                state_columns={EVIL: EVIL},
            )
            for example in (0, 1)
            for index in (0, 1)
        ]  # fmt: skip
        rows[0] = msgspec.structs.replace(
            rows[0],
            messages=[
                {"role": "assistant", "content": [{"type": "text", "text": EVIL}, image], "tool_calls": [call]},
                {"role": "tool", "content": EVIL, "tool_call_id": EVIL, "name": EVIL},
            ],
        )
        push.send(id, lines(rows))
        push.complete(id)
        ids.append(id)
    a, b = ids
    for path in (
        f"/evaluations/{a}",
        f"/evaluations/{a}?q=%22%3Cxss%3E&sort=%3Cxss%3E",
        f"/evaluations/{a}/rollouts/0/0",
        f"/evaluations/{a}/rollouts/1/1",
        f"/evaluations/{a}/compare/{b}",
        f"/evaluations/{a}/compare/{b}?show=%3Cxss%3E",
        f"/evaluations/{a}/compare/{b}/0",
        "/ada/sums",
        "/ada/sums/results",
        "/audit?owner=ada&action=%3Cxss%3E",
        "/search?q=%3Cxss%3E&tag=%3Cxss%3E&owner=%3Cxss%3E&license=%22%3E%3Cxss%3E",
    ):
        answer = client.get(path, headers=ada.headers | HTML)
        assert answer.status_code == 200, path
        assert Tags(answer.text).found == [], path
        assert "{{77777*7}}" in answer.text or "544439" not in answer.text, path


# Floods


def limited(hub: Hub, **changes: int) -> TestClient:
    settings = hub.settings.model_copy(update=changes)
    app = create_app(hub=Hub(settings, hub.database, hub.storage))
    return TestClient(app, "https://hub.test", follow_redirects=False)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/?q=math", "/search?q=math", "/?sort=stars", "/ada/sums/diff"])
def test_no_way_of_searching_escapes_its_limit(hub, world, method, path):
    world.user("ada")
    world.release("ada/sums", visibility="public")
    client = limited(hub, searches_per_minute=3)
    codes = [client.request(method, path).status_code for _ in range(4)]
    assert codes == [200, 200, 200, 429]


def test_comparing_and_filtering_count_as_searches_and_reading_does_not(hub, client, world):
    ada = world.user("ada")
    id = pusher(world, client, ada).push([[0.0, 1.0], [1.0, 1.0]])
    poor = limited(hub, searches_per_minute=3)
    costly = [f"/evaluations/{id}/compare/{id}", f"/evaluations/{id}?q=turns%3E0", f"/evaluations/{id}?sort=reward"]
    costly.append(f"/api/v1/evaluations/{id}/samples?filter=turns%3E0")
    assert [poor.get(path, headers=ada.headers).status_code for path in costly] == [200, 200, 200, 429]
    cheap = [f"/evaluations/{id}", f"/evaluations/{id}?page=1", f"/evaluations/{id}/rollouts/0/0", "/ada/sums", "/"]
    cheap.append(f"/api/v1/evaluations/{id}/samples?limit=10")
    assert {poor.get(path, headers=ada.headers).status_code for path in cheap} == {200}


def test_a_flood_of_evaluations_is_429(hub, client, world):
    ada, bob = world.user("ada"), world.user("bob")
    push = pusher(world, client, ada, visibility="public")
    push.client = limited(hub, evaluations_per_hour=2, sample_pushes_per_minute=2)
    first, _ = push.begin()["id"], push.begin()["id"]
    push.begin(expect=429)
    body = lines([record(wheel=push.wheel)])
    push.send(first, body)
    push.send(first, body)
    push.send(first, body, expect=429)
    push.complete(first, expect=429)
    push.person = bob
    push.begin()


def test_nobody_guesses_the_code_of_another_terminal(hub, world):
    eve = world.user("eve").principal
    code = devices.start(hub, "vf of ada", "admin", "192.0.2.1").user_code
    refused = 0
    for number in range(DEVICE_CODE.amount + 1):
        try:
            (devices.waiting, devices.deny, devices.allow)[number % 3](hub, eve, "BCDF-GHJK")
        except TooMany:
            refused += 1
        except Exception as error:
            assert "no sign-in waits" in str(error)
    assert refused == 1
    with pytest.raises(TooMany):
        devices.allow(hub, eve, code)


def test_a_difference_of_files_that_are_made_to_be_slow_ends(client, world):
    """Each pair of these takes `difflib` seconds."""
    world.user("ada")
    head = "def load_environment(**args):\n    return None\n"
    texts = [head + "".join(f"l{index * step % 100} = 0\n" for index in range(4_900)) for step in (1, 7)]
    for version, text in zip(("1.0.0", "1.1.0"), texts, strict=True):
        package = Package("slow", version, module_text=text)
        world.release("ada/slow", version, visibility="public", package=package)
    began = time.process_time()
    found = client.get("/api/v1/projects/ada/slow/diff?old=1.0.0&new=1.1.0").json()
    assert time.process_time() - began < 1.5
    (module,) = [change for change in found["changes"] if change["path"].endswith("slow.py")]
    assert module["lines"] == [] and module["left_out"] == "too many lines are alike"


def test_a_flood_of_models_leaves_the_leaderboard_quick_and_short(hub, client, world):
    """Whoever sees an environment may push to it, under as many names of models as they like."""
    ada = world.user("ada")
    id = pusher(world, client, ada, visibility="public").push([[0.0, 1.0], [1.0, 1.0]], visibility="public")
    with hub.database.write() as session:
        of_first = session.get_one(Evaluation, id)
        same = {column.key: getattr(of_first, column.key) for column in Evaluation.__table__.columns}
        same |= {"summary": same["summary"] | {"padding": "x" * 2_000}}
        numbers = range(MOST_ROWS + 100)
        more = [{**same, "id": f"{n:032x}", "idempotency_key": f"key-{n:08}", "model": f"m{n}"} for n in numbers]
        session.execute(insert(Evaluation), more)
        session.get_one(Evaluation, f"{7:032x}").lower_bound = 0.99
    board = client.get("/api/v1/projects/ada/sums/leaderboard").json()
    assert len(board["rows"]) == MOST_ROWS
    assert [(row["model"], row["rank"]) for row in board["rows"][:2]] == [("m7", 1), ("m0", 2)]


async def test_a_body_that_trickles_is_408(hub):
    settings = hub.settings.model_copy(update={"body_timeout_s": 0.2})
    app, sent = create_app(hub=Hub(settings, hub.database, hub.storage)), []

    async def receive():
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/login", "query_string": b"", "scheme": "https", "root_path": "",
        "headers": [(b"host", b"hub.test"), (b"content-type", b"application/x-www-form-urlencoded")],
        "client": ("192.0.2.1", 1), "http_version": "1.1",
    }  # fmt: skip
    await asyncio.wait_for(app(scope, receive, send), 100)
    assert sent[0]["status"] == 408
