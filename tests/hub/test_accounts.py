"""Users and sessions: signing in by name and password, what ends a session, who may make users."""

from datetime import timedelta

import pytest
from hub_world import bearer, until_told
from sqlalchemy import select
from starlette.testclient import TestClient

from hub_server import limits, passwords
from hub_server.app import create_app
from hub_server.errors import BadRequest, Conflict, NotSignedIn, TooMany
from hub_server.hub import Hub
from hub_server.models import Account, Session, now
from hub_server.services import accounts, credentials
from hub_server.settings import Settings

PASSWORD = "a horse that reads"


@pytest.fixture
def ada(hub):
    return accounts.create_user(hub, "ada", PASSWORD)


def who_is(hub, session):
    return credentials.principal_of(hub, None, session)


def test_the_right_password_gives_a_session_that_is_its_user(hub, ada):
    who = who_is(hub, accounts.sign_in(hub, " Ada ", PASSWORD))
    assert (who.name, who.scope, who.token_id) == ("ada", "admin", None)


def test_a_wrong_name_looks_like_a_wrong_password(hub, ada):
    accounts.create_user(hub, "bob")  # without a password
    accounts.create_user(hub, "eve", PASSWORD)
    accounts.set_active(hub, "eve", False)
    told = set()
    for name, password in (
        ("ada", "wrong password"),
        ("nobody", PASSWORD),
        ("bob", ""),
        ("eve", PASSWORD),
        ("a\0", "x"),
    ):
        with pytest.raises(NotSignedIn) as refused:
            accounts.sign_in(hub, name, password)
        told.add((refused.value.code, refused.value.message))
    assert len(told) == 1


def test_an_unknown_name_takes_a_hash_too(hub, ada, monkeypatch):
    """Counted, not timed: what a clock shows on a busy machine proves nothing."""
    hashes = []
    verify = type(passwords._HASHER).verify
    monkeypatch.setattr(type(passwords._HASHER), "verify", lambda self, *a: hashes.append(a) or verify(self, *a))
    for name in ("ada", "nobody"):
        with pytest.raises(NotSignedIn):
            accounts.sign_in(hub, name, "wrong password")
    assert len(hashes) == 2


def test_only_a_hash_of_the_password_and_of_the_session_is_kept(hub, ada):
    secret = accounts.sign_in(hub, "ada", PASSWORD)
    with hub.database.read() as session:
        assert session.scalar(select(Account.password_hash)).startswith("$argon2id$")
        assert secret not in session.scalar(select(Session.sha256))


@pytest.mark.parametrize("password", ["", "short", "x" * 9, "x" * 1001])
def test_a_password_of_no_use_is_refused(hub, password):
    with pytest.raises(BadRequest):
        accounts.create_user(hub, "ada", password)
    with hub.database.read() as session:
        assert session.scalar(select(Account)) is None


def test_a_session_that_is_over_is_nobody(hub, ada):
    secret = accounts.sign_in(hub, "ada", PASSWORD)
    with hub.database.write() as session:
        session.scalar(select(Session)).expires_at = now() - timedelta(seconds=1)
    assert who_is(hub, secret).is_anonymous


@pytest.mark.parametrize(
    "end",
    [
        lambda hub, secret: accounts.sign_out(hub, secret),
        lambda hub, secret: accounts.set_password(hub, "ada", "another password"),
        lambda hub, secret: accounts.change_password(hub, who_is(hub, secret), PASSWORD, "another password"),
        lambda hub, secret: accounts.set_active(hub, "ada", False),
    ],
    ids=["sign out", "operator sets password", "password change", "disabled"],
)
def test_a_session_ends_at_once_on_every_worker(hub, ada, end):
    accounts.create_user(hub, "root", is_admin=True)
    secret = accounts.sign_in(hub, "ada", PASSWORD)
    other_worker = Hub.open(hub.settings)
    try:
        assert who_is(hub, secret).name == who_is(other_worker, secret).name == "ada"
        end(other_worker, secret)
        assert who_is(other_worker, secret).is_anonymous
        assert until_told(hub, lambda: who_is(hub, secret).is_anonymous)
    finally:
        other_worker.close()


def test_a_disabled_users_token_stops_and_works_again_when_enabled(client, hub, world):
    bob = world.user("bob")
    accounts.set_active(hub, "bob", False)
    answer = client.get("/api/v1/whoami", headers=bob.headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "account_disabled")
    accounts.set_active(hub, "bob", True)
    assert client.get("/api/v1/whoami", headers=bob.headers).is_success


def test_the_last_administrator_stays(hub):
    accounts.create_user(hub, "root", is_admin=True)
    with pytest.raises(Conflict):
        accounts.set_active(hub, "root", False)


@pytest.mark.parametrize(
    "name",
    ["a", "A B", "-ada", "ada-", "a--b", "ada_b", "ada.b", "../x", "ädä", "аda", "x" * 40, "a\n", "a/b", "", "\0a"],
)
def test_a_name_that_could_mislead_is_refused(hub, name):
    with pytest.raises(BadRequest):
        accounts.create_user(hub, name)


def test_the_hubs_own_addresses_are_no_names_of_owners(hub, app):
    first = {getattr(route, "path", "").split("/")[1] for route in app.routes}
    own = {part for part in first if part and not part.startswith("{")}
    assert own <= accounts.RESERVED_OWNERS, "a user of that name would never see an own page"
    for name in sorted(own):
        with pytest.raises(BadRequest):
            accounts.create_user(hub, name)


def test_a_name_is_taken_by_users_and_organisations_alike(hub, world):
    world.user("ada")
    world.organisation("lab", ada="owner")
    for name in ("ada", "ADA", "lab"):
        with pytest.raises(Conflict):
            accounts.create_user(hub, name)


# Item 42: guessing


def test_item_42_the_eleventh_guess_waits_even_with_the_right_password(hub, ada):
    for _ in range(10):
        with pytest.raises(NotSignedIn):
            accounts.sign_in(hub, "ada", "a wrong guess", "192.0.2.1")
    with pytest.raises(TooMany) as refused:
        accounts.sign_in(hub, "ada", PASSWORD, "192.0.2.1")
    assert 0 < refused.value.retry_after_s <= 330  # a tenth of the older window must leave the view
    assert accounts.sign_in(hub, "ada", PASSWORD, "192.0.2.2"), "the user is not locked out by somebody else's guesses"


def test_item_42_guesses_at_two_workers_count_together(hub, ada):
    other_worker = Hub.open(hub.settings)
    try:
        for worker in [hub, other_worker] * 5:
            with pytest.raises(NotSignedIn):
                accounts.sign_in(worker, "ada", "a wrong guess", "192.0.2.1")
        for worker in (hub, other_worker):
            with pytest.raises(TooMany):
                accounts.sign_in(worker, "ada", PASSWORD, "192.0.2.1")
    finally:
        other_worker.close()


def test_item_42_one_password_on_many_names_is_stopped(hub):
    for _ in range(limits.SIGN_IN_ADDRESS.amount - 1):
        hub.limiter.spend(limits.SIGN_IN_ADDRESS, "192.0.2.1")
    with pytest.raises(NotSignedIn):
        accounts.sign_in(hub, "user-50", "123456789a", "192.0.2.1")
    with pytest.raises(TooMany):
        accounts.sign_in(hub, "user-51", "123456789a", "192.0.2.1")


# Registration


def test_only_administrators_make_users(client, world, hub):
    root, ada = world.user("root", is_admin=True), world.user("ada")
    body = {"name": "eve", "password": PASSWORD}
    assert client.post("/api/v1/users", json=body).status_code == 401
    assert client.post("/api/v1/users", json=body, headers=ada.headers).status_code == 403
    assert client.post("/api/v1/users", json=body, headers=root.headers).status_code == 201
    assert client.post("/api/v1/users", json=body, headers=root.headers).status_code == 409
    assert accounts.sign_in(hub, "eve", PASSWORD)


def test_a_user_never_makes_itself_an_administrator(client, world):
    root = world.user("root", is_admin=True)
    body = {"name": "eve", "password": PASSWORD, "is_admin": True}
    assert client.post("/api/v1/users", json=body, headers=root.headers).status_code == 422
    assert client.patch("/api/v1/users/root", json={"is_admin": True}, headers=root.headers).status_code == 422


def test_where_registration_is_open_anyone_makes_one_account_but_not_a_hundred(hub):
    settings = hub.settings.model_copy(update={"open_registration": True})
    with TestClient(create_app(hub=Hub(settings, hub.database, hub.storage)), "https://hub.test") as client:
        answers = [
            client.post("/api/v1/users", json={"name": f"user-{number}", "password": PASSWORD}) for number in range(11)
        ]
        assert [answer.status_code for answer in answers] == [201] * 10 + [429]
        assert client.post("/api/v1/users", json={"name": "no-password"}).status_code in (400, 429)


def test_the_first_account_is_an_administrator_and_there_is_one_first(hub, client):
    made = accounts.first_account(hub, "ada")
    who = client.get("/api/v1/whoami", headers=bearer(made.token)).json()
    assert (who["name"], who["is_admin"], who["scope"]) == ("ada", True, "admin")
    assert accounts.first_account(hub, "eve") is None


def test_a_private_hub_shows_nothing_to_nobody(hub, world):
    ada = world.user("ada")
    world.release("ada/math-env", visibility="public")
    settings = hub.settings.model_copy(update={"is_private": True})
    with TestClient(create_app(hub=Hub(settings, hub.database, hub.storage)), "https://hub.test") as client:
        for path in (
            "/ada/math-env/simple/",
            "/simple/",
            "/api/v1/projects",
            "/api/v1/accounts/ada",
            "/ada/none/simple/",
        ):
            answer = client.get(path)
            assert answer.status_code == 401 and "www-authenticate" in answer.headers, path
            assert client.get(path, headers=ada.headers).status_code != 401, path
        assert client.get("/healthz").is_success


def test_whoami_says_what_the_token_is_for(client, world):
    world.user("ada")
    world.organisation("lab", ada="maintainer")
    world.release("lab/math-env")
    token = world.token("ada", "read", project="lab/math-env", expires_in_s=60)
    found = client.get("/api/v1/whoami", headers=bearer(token)).json()
    assert found["scope"] == "read" and found["project"] == "lab/math-env" and found["expires_at"]
    assert found["organisations"] == [{"organisation": "lab", "role": "maintainer"}]
    assert client.get("/api/v1/whoami").status_code == 401


def test_settings_of_a_hub_name_no_test_host():
    assert Settings().allowed_hosts == ("127.0.0.1", "localhost", "[::1]")
