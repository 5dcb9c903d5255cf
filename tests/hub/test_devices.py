"""`vf login`: a program waits, its user allows it on a page, the program gets a token."""

import threading
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from hub_world import bearer
from sqlalchemy import select, update

from hub_server.errors import HubError
from hub_server.models import Device, Token, now
from hub_server.services import accounts, credentials, devices

PASSWORD = "a horse that reads"
OWN_PAGE = {"Origin": "https://hub.test"}


@pytest.fixture
def browser(client, hub):
    accounts.create_user(hub, "ada", PASSWORD)
    client.cookies.set("__Host-vf-hub", accounts.sign_in(hub, "ada", PASSWORD), domain="hub.test")
    return client


def start(client, **body):
    return client.post("/api/v1/device", json={"client_name": "vf on laptop"} | body, headers=OWN_PAGE)


def ask(client, started):
    return client.post("/api/v1/device/token", json={"device_code": started["device_code"]}, headers=OWN_PAGE)


def wait_over(hub):
    """As if the program had waited between two questions."""
    with hub.database.write(seen=False) as session:
        session.execute(update(Device).values(asked_at=None))


def test_the_whole_of_vf_login(browser, hub):
    started = start(browser, scope="publish").json()
    url = urlsplit(started["verification_url"])
    assert (url.netloc, url.path, parse_qs(url.query)) == (
        "hub.test",
        "/login/device",
        {"code": [started["user_code"]]},
    )
    pending = ask(browser, started)
    assert (pending.status_code, pending.json()["code"]) == (400, "authorization_pending")
    shown = browser.get(f"/api/v1/device/{started['user_code']}").json()
    assert (shown["client_name"], shown["scope"], shown["address"]) == ("vf on laptop", "publish", "testclient")
    assert browser.post(f"/api/v1/device/{started['user_code']}/allow", headers=OWN_PAGE).status_code == 204
    wait_over(hub)
    got = ask(browser, started).json()
    assert (got["user"], got["scope"]) == ("ada", "publish")
    browser.cookies.clear()
    who = browser.get("/api/v1/whoami", headers=bearer(got["token"])).json()
    assert (who["name"], who["scope"], who["token_name"]) == ("ada", "publish", "vf on laptop")


def test_a_token_is_handed_over_once_even_to_many_who_ask_together(browser, hub):
    started = start(browser).json()
    devices.allow(hub, credentials.principal_of(hub, None, browser.cookies["__Host-vf-hub"]), started["user_code"])
    barrier, got = threading.Barrier(4), []

    def redeem():
        barrier.wait()
        try:
            got.append(devices.redeem(hub, started["device_code"]).token)
        except HubError as refused:
            got.append(refused.code)

    threads = [threading.Thread(target=redeem) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got)[:3] == ["expired_token"] * 3 and got.count("expired_token") == 3
    with hub.database.read() as session:
        assert len(session.scalars(select(Token)).all()) == 1


def test_a_refused_program_is_told_so(browser):
    started = start(browser).json()
    assert browser.post(f"/api/v1/device/{started['user_code']}/deny", headers=OWN_PAGE).status_code == 204
    assert ask(browser, started).json()["code"] == "access_denied"
    assert browser.post(f"/api/v1/device/{started['user_code']}/allow", headers=OWN_PAGE).status_code == 404


def test_asking_too_often_is_told(browser):
    started = start(browser).json()
    assert ask(browser, started).json()["code"] == "authorization_pending"
    answer = ask(browser, started)
    assert (answer.status_code, answer.json()["code"]) == (429, "slow_down") and answer.headers["retry-after"] == "3"


def test_an_old_request_is_over(browser, hub):
    started = start(browser).json()
    with hub.database.write(seen=False) as session:
        session.execute(update(Device).values(expires_at=now() - timedelta(seconds=1)))
    assert ask(browser, started).json()["code"] == "expired_token"
    assert browser.post(f"/api/v1/device/{started['user_code']}/allow", headers=OWN_PAGE).status_code == 404


def test_a_token_allows_no_other_program(browser, world):
    """Else a leaked one could make itself last for ever."""
    started = start(browser).json()
    browser.cookies.clear()
    for token in (world.token("ada"), world.token("ada", "read")):
        answer = browser.post(f"/api/v1/device/{started['user_code']}/allow", headers=bearer(token))
        assert answer.status_code == 403
    assert browser.post(f"/api/v1/device/{started['user_code']}/allow").status_code == 401


def test_the_short_code_is_no_key_to_the_token(browser):
    started = start(browser).json()
    browser.post(f"/api/v1/device/{started['user_code']}/allow", headers=OWN_PAGE)
    assert ask(browser, {"device_code": started["user_code"]}).json()["code"] == "expired_token"


def test_the_long_code_is_kept_as_a_hash(browser, hub):
    started = start(browser).json()
    with hub.database.read() as session:
        row = session.scalar(select(Device))
    assert started["device_code"] not in map(str, vars(row).values())


@pytest.mark.parametrize(
    "body", [{"client_name": ""}, {"client_name": "x" * 81}, {"client_name": "a\nb"}, {"scope": "all"}]
)
def test_a_program_says_in_words_what_it_is(browser, body):
    assert start(browser, **body).status_code == 422


def test_item_42_a_flood_of_programs_is_429(browser):
    codes = [start(browser).status_code for _ in range(31)]
    assert codes == [201] * 30 + [429]
