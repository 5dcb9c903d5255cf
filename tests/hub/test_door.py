"""The door: hosts, proxies, other sites' pages, bodies, headers."""

import asyncio
import io

import pytest
from hub_routes import all_routes, filled
from sqlalchemy import func, select
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from hub_server import logs
from hub_server.answers import answer
from hub_server.door import MAX_PLAIN_BODY_BYTES, Door
from hub_server.errors import HubError
from hub_server.http import address_of, base_url, clear_session, is_loopback, local_path, set_session
from hub_server.models import Base
from hub_server.services import accounts
from hub_server.settings import Settings

PASSWORD = "a horse that reads"


async def seen(request: Request) -> Response:
    """What a route is told of the request."""
    return JSONResponse({"address": address_of(request), "base": base_url(request), "id": request.state.request_id})


async def sign_in(request: Request) -> Response:
    response = Response()
    if request.method == "DELETE":
        clear_session(request, response)
    else:
        set_session(request, response, "secret")
    return response


async def read(request: Request) -> Response:
    return JSONResponse(len(await request.body()))


async def broken(request: Request) -> Response:
    raise ZeroDivisionError("token=vfh_AAAAAAAAAAAAAAAAAAAA")


def door(hub, client=("testclient", 50000), base="https://hub.test", log=None, **changes) -> TestClient:
    """An application of the routes above behind a door with other settings."""
    settings = hub.settings.model_copy(update=changes)
    app = Starlette(
        routes=[
            Route("/seen", seen, methods=["GET", "POST"]),
            Route("/sign-in", sign_in, methods=["POST", "DELETE"]),
            Route("/read", read, methods=["POST"]),
            Route("/broken", broken),
        ],
        middleware=[Middleware(Door, settings=settings, log=logs.logger("INFO", log or io.BytesIO()))],
        exception_handlers={HubError: answer},  # pyright: ignore[reportArgumentType]
    )
    app.state.hub = type(hub)(settings, hub.database, hub.storage)
    return TestClient(app, base, client=client, raise_server_exceptions=False)


# Item 43: forged addresses


@pytest.mark.parametrize(
    "host", ["evil.example", "hub.test.evil.example", "hub.test@evil.example", "hub.test/x", "", "hub.test:x"]
)
def test_item_43_a_forged_host_is_refused(hub, host):
    answer = door(hub).get("/seen", headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_host")


def test_item_43_two_hosts_are_refused(hub):
    assert door(hub).get("/seen", headers=[("Host", "hub.test"), ("Host", "hub.test")]).status_code == 400


def test_item_43_forwarded_headers_of_strangers_change_nothing(hub):
    forged = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "http", "X-Forwarded-For": "192.0.2.66"}
    found = door(hub, client=("192.0.2.1", 1), trusted_proxies=("10.0.0.0/8",)).get("/seen", headers=forged).json()
    assert (found["address"], found["base"]) == ("192.0.2.1", "https://hub.test")


def test_item_43_a_trusted_proxy_tells_client_scheme_and_host(hub):
    told = {"X-Forwarded-Host": "hub.test", "X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.66"}
    client = door(hub, client=("10.1.2.3", 1), base="http://hub.test", trusted_proxies=("10.0.0.0/8",))
    found = client.get("/seen", headers=told | {"X-Request-Id": "from-the-proxy"}).json()
    assert found == {"address": "192.0.2.66", "base": "https://hub.test", "id": "from-the-proxy"}
    assert client.get("/seen", headers=told | {"X-Forwarded-Host": "evil.example"}).status_code == 400


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.66, 192.0.2.1", "192.0.2.1"),  # the client wrote the first itself
        ("192.0.2.1, 10.9.9.9", "192.0.2.1"),
        ("192.0.2.1:4711", "192.0.2.1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("<script>", "10.1.2.3"),
        ("<script>, 192.0.2.1", "192.0.2.1"),
        ("", "10.1.2.3"),
        ("10.9.9.9", "10.9.9.9"),
    ],
)
def test_item_43_the_client_is_the_last_address_that_is_no_proxy_of_ours(hub, forwarded, address):
    client = door(hub, client=("10.1.2.3", 1), trusted_proxies=("10.0.0.0/8",))
    assert client.get("/seen", headers={"X-Forwarded-For": forwarded}).json()["address"] == address


def test_item_43_links_lead_to_the_public_address_whatever_the_host(hub):
    client = door(hub, base="http://127.0.0.1", public_url="https://hub.example/", allowed_hosts=("127.0.0.1",))
    assert client.get("/seen").json()["base"] == "https://hub.example"
    assert client.get("/seen", headers={"Host": "hub.example"}).is_success


def test_item_43_what_depends_on_who_asks_is_kept_by_no_shared_cache(client, world):
    ada = world.user("ada")
    for path in ("/api/v1/whoami", "/api/v1/accounts/ada", "/nothing/here/at/all"):
        assert "private" in client.get(path, headers=ada.headers).headers["cache-control"], path


def test_a_probe_asks_by_the_machines_address(client):
    assert client.get("/healthz", headers={"Host": "10.1.2.3:8700"}).is_success
    assert client.get("/api/v1/whoami", headers={"Host": "10.1.2.3:8700"}).status_code == 400


def test_a_wrong_list_of_proxies_is_told_at_the_start(hub):
    with pytest.raises(HubError, match="VF_HUB_TRUSTED_PROXIES"), door(hub, trusted_proxies=("everything",)):
        pass


# Item 40: other sites' pages


@pytest.fixture
def browser(client, hub):
    """Signed in as ada by cookie."""
    accounts.create_user(hub, "ada", PASSWORD)
    client.cookies.set("__Host-vf-hub", accounts.sign_in(hub, "ada", PASSWORD), domain="hub.test")
    assert client.get("/api/v1/whoami").json()["name"] == "ada"
    return client


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://hub.test"},
        {"Origin": "https://hub.test:444"},
        {"Origin": "https://hub.test.evil.example"},
        {"Origin": "https://hub.test", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_item_40_a_state_change_from_another_sites_page_is_refused(browser, hub, headers):
    answer = browser.post("/api/v1/organisations", json={"name": "lab"}, headers=headers)
    assert answer.status_code == 403
    assert browser.get("/api/v1/accounts/lab").status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://hub.test"},
        {"Origin": "https://hub.test", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-origin"},
    ],
)
def test_item_40_our_own_pages_change_things(browser, headers):
    assert browser.post("/api/v1/organisations", json={"name": "lab"}, headers=headers).status_code == 201


def test_item_40_a_foreign_page_cannot_use_credentials_that_the_browser_keeps_for_basic_auth(client, world):
    headers = world.user("ada").headers | {"Origin": "https://evil.example"}
    assert client.post("/api/v1/organisations", json={"name": "lab"}, headers=headers).status_code == 403


def test_item_40_programs_send_no_origin_and_need_none(client, world):
    headers = world.user("ada").headers
    assert client.post("/api/v1/organisations", json={"name": "lab"}, headers=headers).status_code == 201


def test_item_40_no_address_changes_anything_by_get(client, hub, world, app):
    """Every address that changes something is asked by GET, as an owner: what the tables hold stays the same."""
    ada = world.user("ada", is_admin=True)
    world.release("ada/math-env", visibility="public")
    client.get("/api/v1/whoami", headers=ada.headers)  # notes the token's use
    kept = [table for table in Base.metadata.sorted_tables if table.name != "rate_count"]

    def counts():
        with hub.database.read() as session:
            return {table.name: session.scalar(select(func.count()).select_from(table)) for table in kept}

    before = counts()
    changing = {route.path for route in all_routes(app) if route.method not in ("GET", "HEAD")}
    assert len(changing) > 15
    for path in sorted(changing):
        client.get(filled(path, owner="ada", name="math-env", env="math-env"), headers=ada.headers)
    assert counts() == before


def test_item_40_the_session_cookie_is_for_https_this_host_and_no_script(hub):
    answer = door(hub).post("/sign-in")
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert name == "__Host-vf-hub=secret"
    assert {"Secure", "HttpOnly", "SameSite=lax", "Path=/"} <= set(attributes)
    assert not any(attribute.startswith("Domain") for attribute in attributes)
    assert "__Host-vf-hub" in door(hub).delete("/sign-in").headers["set-cookie"]


def test_item_40_no_session_crosses_a_network_in_the_open(hub):
    answer = door(hub, base="http://hub.test").post("/sign-in")
    assert (answer.status_code, answer.json()["code"]) == (400, "https_needed")
    at_home = door(hub, base="http://127.0.0.1:8700", allowed_hosts=("127.0.0.1",)).post("/sign-in")
    assert at_home.headers["set-cookie"].startswith("vf-hub=secret; HttpOnly")


def test_item_40_no_page_is_framed_and_no_script_runs_in_line(client):
    headers = client.get("/api/v1/whoami").headers
    assert headers["x-frame-options"] == "DENY" and "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "same-origin"
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy


# Item 45


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example",
        "/\n//evil.example", "javascript:alert(1)", "evil.example", "", None, " /tokens", "/a\\b", "/%00\0",
    ],
)  # fmt: skip
def test_item_45_a_redirect_to_another_host_is_ignored(target):
    assert local_path(target) == "/"


@pytest.mark.parametrize("target", ["/", "/ada/math-env?tab=files#x", "/login/device?code=BCDF-GHJK"])
def test_item_45_a_redirect_on_this_hub_is_followed(target):
    assert local_path(target) == target


# Bodies


def test_a_plain_body_is_never_read_beyond_its_limit(hub):
    client = door(hub)
    assert client.post("/read", content=b"x" * MAX_PLAIN_BODY_BYTES).json() == MAX_PLAIN_BODY_BYTES
    sent = []

    def endless():
        while len(sent) < 64:
            sent.append(1)
            yield b"x" * (1 << 20)

    assert client.post("/read", content=b"x" * (MAX_PLAIN_BODY_BYTES + 1)).status_code == 413
    assert client.post("/read", content=endless()).status_code == 413


def test_a_json_body_beyond_the_limit_is_413_without_a_length_too(client, world):
    ada = world.user("ada")
    body = b'{"name": "lab", "display_name": "' + b"x" * MAX_PLAIN_BODY_BYTES + b'"}'
    answer = client.post(
        "/api/v1/organisations", content=iter([body]), headers=ada.headers | {"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_a_body_that_stops_coming_is_408(hub):
    app, sent = door(hub, body_timeout_s=0.05).app, []
    pieces = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive():
        for piece in pieces:
            return piece
        await asyncio.sleep(250)

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/read", "query_string": b"", "headers": [(b"host", b"hub.test")],
        "scheme": "https", "client": ("192.0.2.1", 1), "root_path": "", "http_version": "1.1",
    }  # fmt: skip
    await asyncio.wait_for(app(scope, receive, send), 100)
    assert sent[0]["status"] == 408


@pytest.mark.parametrize("path", ["/api/v1/accounts/a%00b", "/%00", "/api/v1/projects?search=a%00b"])
def test_a_nul_in_an_address_is_400(client, path):
    assert client.get(path).status_code == 400


# Mistakes


def test_a_mistake_of_ours_is_a_plain_500_and_a_traceback_in_the_log_without_secrets(hub):
    log = io.BytesIO()
    answer = door(hub, log=log).get("/broken")
    assert answer.status_code == 500 and answer.json()["code"] == "internal"
    assert "ZeroDivision" not in answer.text and answer.headers["content-type"] == "application/problem+json"
    text = log.getvalue().decode()
    assert "ZeroDivisionError" in text and answer.json()["request_id"] in text
    assert "vfh_AAAA" not in text


def test_loopback_is_this_machine_alone():
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "hub.localhost")))
    assert not any(map(is_loopback, ("localhost.evil.example", "128.0.0.1", "0.0.0.0", "hub", "")))


def test_settings_are_read_as_they_are_documented(monkeypatch):
    monkeypatch.setenv("VF_HUB_ALLOWED_HOSTS", '["hub.example"]')
    monkeypatch.setenv("VF_HUB_TRUSTED_PROXIES", '["10.0.0.0/8", "unix"]')
    settings = Settings()
    assert (settings.allowed_hosts, settings.trusted_proxies) == (("hub.example",), ("10.0.0.0/8", "unix"))
