"""Tokens: their form, what they let through, how they end."""

import base64
import string
import time
from datetime import timedelta

import pytest
from hub_world import bearer, until_told
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from waiting import steady

from hub_server import tokens
from hub_server.errors import Forbidden, NotFound, NotSignedIn, Unprocessable
from hub_server.hub import Hub
from hub_server.models import Token, now
from hub_server.principal import Principal
from hub_server.services import access_tokens, collaborators, credentials, organisations
from hub_server.services.access_tokens import TokenWish


def who_is(hub: Hub, token: str) -> Principal:
    return credentials.principal_of(hub, f"Bearer {token}", None)


def refusal(hub: Hub, token: str) -> str | None:
    try:
        who_is(hub, token)
    except NotSignedIn as refused:
        return refused.code


# The secret itself


def test_two_secrets_are_never_alike_and_have_one_form():
    made = [tokens.make() for _ in range(200)]
    assert len({secret.text for secret in made}) == 200
    assert all(tokens.is_wellformed(secret.text) and len(secret.text) == 53 for secret in made)
    assert all(secret.text.startswith(secret.prefix) and len(secret.prefix) == 12 for secret in made)


@given(st.integers(4, 52), st.sampled_from(string.digits + string.ascii_letters))
def test_one_wrong_letter_is_noticed_without_the_database(place, letter):
    text = tokens.make().text
    changed = text[:place] + letter + text[place + 1 :]
    assert tokens.is_wellformed(changed) == (changed == text)


@given(st.text())
def test_other_text_is_no_token(text):
    assert not tokens.is_wellformed(text)
    assert not tokens.is_wellformed(text + tokens.make().text) or not text


def test_a_session_is_no_token():
    assert not tokens.is_wellformed(tokens.make("vfs_").text)


# Item 38


def test_item_38_only_the_sha256_of_a_token_is_kept(hub, world):
    ada = world.user("ada")
    made = access_tokens.create_token(hub, ada.principal, TokenWish("laptop"))
    with hub.database.read() as session:
        row = session.scalar(select(Token).where(Token.name == "laptop"))
    assert row.sha256 == tokens.sha256_of(made.token)
    kept = " ".join(str(value) for value in vars(row).values())
    assert made.token not in kept and made.token[16:] not in kept
    assert made.token.startswith(row.prefix) and row.prefix.startswith("vfh_")


def test_item_38_a_token_is_shown_once(client, world):
    ada = world.user("ada")
    answer = client.post("/api/v1/tokens", json={"name": "laptop", "scope": "read"}, headers=ada.headers)
    assert answer.status_code == 201 and answer.headers["cache-control"] == "no-store"
    secret = answer.json()["token"]
    listed = client.get("/api/v1/tokens", headers=ada.headers).text
    assert "laptop" in listed and secret[:12] in listed and secret[12:] not in listed


def test_item_38_a_revoked_token_is_refused_at_once_by_every_worker(hub, world):
    ada = world.user("ada")
    made = access_tokens.create_token(hub, ada.principal, TokenWish("CI"))
    other_worker = Hub.open(hub.settings)
    try:
        assert who_is(hub, made.token).name == who_is(other_worker, made.token).name == "ada"
        access_tokens.revoke_token(other_worker, ada.principal, made.view.id)
        assert refusal(other_worker, made.token) == "token_revoked"
        assert until_told(hub, lambda: refusal(hub, made.token) == "token_revoked")
    finally:
        other_worker.close()


@pytest.mark.parametrize(
    "authorization",
    ["Bearer {}", "bearer {}", "Basic __token__:{}", "Basic {}:", "Basic ada:{}", "basic __token__:{}"],
)
def test_a_token_comes_as_bearer_or_in_basic(client, world, authorization):
    scheme, rest = authorization.format(world.user("ada").token).split(" ", 1)
    if scheme.lower() == "basic":
        rest = base64.b64encode(rest.encode()).decode()
    answer = client.get("/api/v1/whoami", headers={"Authorization": f"{scheme} {rest}"})
    assert answer.status_code == 200 and answer.json()["name"] == "ada"


@pytest.mark.parametrize(
    "authorization",
    [
        "", "Bearer", "Bearer ", "Bearer x", "Basic", "Basic !!!", "Basic dXNlcjpwYXNz", "Basic /w==", "Digest a=b",
        "Bearer vfh_" + "0" * 49, "Bearer " + "é" * 50, "Bearer " + tokens.make().text,
        "Bearer " + tokens.make("vfs_").text,
    ],
    ids=range(13),  # some are others in every process
)  # fmt: skip
def test_a_wrong_token_is_401_even_where_nobody_needs_one(client, world, authorization):
    """So that an installer stops here, instead of taking the same name from another index."""
    world.user("ada")
    world.release("ada/math-env", visibility="public")
    answer = client.get("/ada/math-env/simple/", headers={"Authorization": authorization.encode()})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic realm=")


# Item 39


def test_item_39_a_token_for_one_environment_does_not_publish_to_another(client, world):
    world.user("ada")
    world.release("ada/math-env", visibility="public")
    world.release("ada/word-env", visibility="public")
    narrow = bearer(world.token("ada", "admin", project="ada/math-env"))
    assert client.put("/api/v1/projects/ada/math-env/status", json={"status": "deprecated"}, headers=narrow).is_success
    answer = client.put("/api/v1/projects/ada/word-env/status", json={"status": "deprecated"}, headers=narrow)
    assert (answer.status_code, answer.json()["code"]) == (403, "token_elsewhere")


def test_item_39_an_expired_token_is_refused(client, world):
    """With 401, as a revoked one: an index client must not go on without it."""
    world.user("ada")
    over = world.token("ada", expires_in_s=-1)
    answer = client.get("/api/v1/whoami", headers=bearer(over))
    assert (answer.status_code, answer.json()["code"]) == (401, "token_expired")


@steady(0.5)
def test_item_39_a_token_that_expires_while_it_is_held_is_refused(client, world):
    world.user("ada")
    brief = bearer(world.token("ada", expires_in_s=3))
    assert client.get("/api/v1/whoami", headers=brief).is_success
    time.sleep(3.1)
    assert client.get("/api/v1/whoami", headers=brief).status_code == 401


@pytest.mark.parametrize("scope", ["read", "publish", "admin"])
def test_item_39_a_token_for_one_environment_deletes_nothing(client, world, scope):
    world.user("ada")
    world.release("ada/math-env", visibility="public")
    narrow = bearer(world.token("ada", scope, project="ada/math-env"))
    assert client.delete("/api/v1/projects/ada/math-env", headers=narrow).status_code == 403
    assert client.get("/api/v1/projects/ada/math-env/settings").is_success


@pytest.mark.parametrize("scope", ["read", "publish"])
def test_a_narrow_scope_changes_no_settings_and_makes_no_tokens(client, world, scope):
    world.user("ada")
    world.release("ada/math-env", visibility="public")
    narrow = bearer(world.token("ada", scope))
    for method, path, body in (
        ("PUT", "/projects/ada/math-env/visibility", {"visibility": "private"}),
        ("POST", "/tokens", {"name": "more"}),
        ("POST", "/organisations", {"name": "lab"}),
        ("PUT", "/password", {"old": "x", "new": "y"}),
        ("PATCH", "/accounts/ada", {"about": "x"}),
    ):
        answer = client.request(method, f"/api/v1{path}", json=body, headers=narrow)
        assert (answer.status_code, answer.json()["code"]) == (403, "token_scope"), path


# Making and ending them


def test_a_token_never_makes_one_that_outlives_it(hub, world):
    world.user("ada")
    who = who_is(hub, world.token("ada", expires_in_s=86_400))
    assert access_tokens.create_token(hub, who, TokenWish("shorter", days=0.5)).view.expires_at < now() + timedelta(1)
    for days in (2, None):
        with pytest.raises(Forbidden) as refused:
            access_tokens.create_token(hub, who, TokenWish("longer", days=days))
        assert refused.value.code == "token_outlives"


def test_a_token_for_one_owner_or_environment_makes_no_other(hub, world):
    world.user("ada")
    world.release("ada/math-env")
    for narrow in (world.token("ada", owner="ada"), world.token("ada", project="ada/math-env")):
        with pytest.raises(Forbidden):
            access_tokens.create_token(hub, who_is(hub, narrow), TokenWish("wide"))


@pytest.mark.parametrize(
    "wish",
    [
        TokenWish(""), TokenWish(" "), TokenWish("x" * 101), TokenWish("a\nb"), TokenWish("x", "everything"),
        TokenWish("x", days=0), TokenWish("x", days=-1), TokenWish("x", days=5000), TokenWish("x", days=float("nan")),
        TokenWish("x", project="math-env"),
    ],
)  # fmt: skip
def test_a_wish_without_sense_is_refused(hub, world, wish):
    with pytest.raises(Unprocessable):
        access_tokens.create_token(hub, world.user("ada").principal, wish)


def test_a_token_for_what_one_has_no_role_on_is_refused_as_for_what_is_not_there(hub, world):
    ada = world.user("ada")
    world.user("bob")
    world.release("bob/secret-env")
    told = set()
    for project in ("bob/secret-env", "bob/nothing-env"):
        with pytest.raises(NotFound) as refused:
            access_tokens.create_token(hub, ada.principal, TokenWish("x", project=project))
        told.add(refused.value.message.replace(project, "…"))
    assert len(told) == 1


def test_another_users_token_is_not_there(client, world):
    ada, bob = world.user("ada"), world.user("bob")
    theirs = client.get("/api/v1/tokens", headers=bob.headers).json()[0]["id"]
    assert client.delete(f"/api/v1/tokens/{theirs}", headers=ada.headers).status_code == 404
    assert client.delete("/api/v1/tokens/999999", headers=ada.headers).status_code == 404
    assert client.get("/api/v1/whoami", headers=bob.headers).is_success


@pytest.mark.parametrize("scope", ["read", "publish", "admin"])
def test_any_token_may_end_itself(client, world, scope):
    world.user("ada")
    mine = bearer(world.token("ada", scope))
    assert client.delete("/api/v1/tokens/current", headers=mine).status_code == 204
    assert client.get("/api/v1/whoami", headers=mine).status_code == 401


def test_the_last_use_is_noted_to_the_hour(hub, world):
    world.user("ada")
    token = world.token("ada")
    for _ in range(3):
        who_is(hub, token)
    with hub.database.read() as session:
        used = session.scalar(select(Token.last_used_at).where(Token.sha256 == tokens.sha256_of(token)))
    assert now() - used < timedelta(minutes=1)


# Item 41: what ends with a membership


def test_item_41_tokens_for_an_organisation_end_with_the_membership(hub, client, world):
    ada, bob = world.user("ada"), world.user("bob")
    world.organisation("lab", ada="owner", bob="maintainer")
    world.release("lab/math-env")
    for_lab, for_env = world.token("bob", owner="lab"), world.token("bob", project="lab/math-env")
    organisations.remove_member(hub, ada.principal, "lab", "bob")
    for token in (for_lab, for_env):
        assert client.get("/api/v1/whoami", headers=bearer(token)).status_code == 401
    assert client.get("/api/v1/projects/lab/math-env/settings", headers=bob.headers).status_code == 404
    organisations.set_member(hub, ada.principal, "lab", "bob", "reader")
    assert client.get("/api/v1/whoami", headers=bearer(for_lab)).status_code == 401, "it must not wake up again"


def test_item_41_tokens_for_an_environment_end_with_the_collaboration(hub, client, world):
    ada, _ = world.user("ada"), world.user("bob")
    world.release("ada/math-env")
    collaborators.set_collaborator(hub, ada.principal, "ada", "math-env", "bob", "maintainer")
    token = world.token("bob", project="ada/math-env")
    assert client.get("/api/v1/projects/ada/math-env/settings", headers=bearer(token)).is_success
    collaborators.remove_collaborator(hub, ada.principal, "ada", "math-env", "bob")
    assert client.get("/api/v1/whoami", headers=bearer(token)).status_code == 401
