"""What owners decide about an environment: visibility, status, collaborators, transfer, deletion; and stars."""

import pytest
from hub_world import bearer
from sqlalchemy import select

from hub_server.models import Project
from verifiers.refs import normalised

API = "/api/v1/projects"


@pytest.fixture
def people(world):
    found = {name: world.user(name) for name in ("ada", "bob", "cyd", "eve")}
    found["root"] = world.user("root", is_admin=True)
    return found


@pytest.fixture
def env(world, people):
    world.release("ada/math-env")
    return f"{API}/ada/math-env"


def status_of(client, path, **kwargs):
    return client.get(path, **kwargs).status_code


def test_public_is_seen_by_everyone_and_private_again_by_nobody_else(client, env, people):
    assert status_of(client, f"{env}/settings") == status_of(client, "/ada/math-env/simple/") == 404
    made = client.put(f"{env}/visibility", json={"visibility": "public"}, headers=people["ada"].headers)
    assert made.json()["visibility"] == "public"
    assert status_of(client, f"{env}/settings") == status_of(client, "/ada/math-env/simple/") == 200
    client.put(f"{env}/visibility", json={"visibility": "private"}, headers=people["ada"].headers)
    assert status_of(client, f"{env}/settings") == status_of(client, "/ada/math-env/simple/") == 404


@pytest.mark.parametrize("status", ["deprecated", "archived", "active"])
def test_a_maintainer_sets_the_status_with_a_reason(client, world, people, status):
    world.organisation("lab", ada="owner", bob="maintainer", cyd="reader")
    world.release("lab/math-env")
    body = {"status": status, "reason": "use lab/other-env"}
    assert client.put(f"{API}/lab/math-env/status", json=body, headers=people["cyd"].headers).status_code == 403
    found = client.put(f"{API}/lab/math-env/status", json=body, headers=people["bob"].headers).json()
    assert (found["status"], found["status_reason"]) == (status, "" if status == "active" else "use lab/other-env")


def test_quarantine_is_the_administrators_on_the_way_in_and_out(client, env, people):
    quarantine, active = {"status": "quarantined", "reason": "malware"}, {"status": "active"}
    assert client.put(f"{env}/status", json=quarantine, headers=people["ada"].headers).status_code == 403
    assert client.put(f"{env}/status", json=quarantine, headers=people["root"].headers).is_success
    for body in (active, quarantine, {"status": "archived"}):
        assert client.put(f"{env}/status", json=body, headers=people["ada"].headers).status_code == 403
    assert client.put(f"{env}/status", json=active, headers=people["root"].headers).is_success


def test_answers_stay_at_home_when_the_owner_says_so(client, env, people):
    found = client.patch(f"{env}/settings", json={"publish_answers": False}, headers=people["ada"].headers)
    assert found.json()["publish_answers"] is False
    assert (
        client.patch(f"{env}/settings", json={"publish_answer": True}, headers=people["ada"].headers).status_code == 422
    )


def test_collaborators_get_what_their_role_says(client, env, people):
    for role, may in (("reader", 403), ("maintainer", 200)):
        made = client.put(f"{env}/collaborators/bob", json={"role": role}, headers=people["ada"].headers)
        assert made.json()["role"] == role
        assert status_of(client, f"{env}/settings", headers=people["bob"].headers) == 200
        answer = client.put(f"{env}/status", json={"status": "active"}, headers=people["bob"].headers)
        assert answer.status_code == may
    listed = client.get(f"{env}/collaborators", headers=people["bob"].headers).json()
    assert [(found["name"], found["role"]) for found in listed] == [("bob", "maintainer")]
    assert status_of(client, f"{env}/collaborators", headers=people["eve"].headers) == 404


def test_item_41_a_collaborator_raises_nobody(client, env, people):
    client.put(f"{env}/collaborators/bob", json={"role": "reader"}, headers=people["ada"].headers)
    for user in ("bob", "eve"):
        answer = client.put(f"{env}/collaborators/{user}", json={"role": "maintainer"}, headers=people["bob"].headers)
        assert answer.status_code == 403
    assert client.delete(f"{env}/collaborators/bob", headers=people["eve"].headers).status_code == 404
    assert client.delete(f"{env}/collaborators/bob", headers=people["bob"].headers).status_code == 204
    assert status_of(client, f"{env}/settings", headers=people["bob"].headers) == 404


def test_a_collaborator_is_never_owner(client, env, people):
    answer = client.put(f"{env}/collaborators/bob", json={"role": "owner"}, headers=people["ada"].headers)
    assert answer.status_code == 422
    answer = client.put(f"{env}/collaborators/ada", json={"role": "reader"}, headers=people["ada"].headers)
    assert answer.status_code == 422


# Deletion


def test_a_deleted_environment_is_gone_and_its_name_taken_for_ever(client, hub, world, env, people):
    client.put(f"{env}/visibility", json={"visibility": "public"}, headers=people["ada"].headers)
    assert client.delete(env, headers=people["eve"].headers).status_code == 403
    assert client.delete(env, headers=people["ada"].headers).status_code == 204
    for path in (f"{env}/settings", "/ada/math-env/simple/"):
        assert status_of(client, path, headers=people["ada"].headers) == 404
        assert status_of(client, path, headers=people["root"].headers) == 404
    assert client.delete(env, headers=people["ada"].headers).status_code == 404
    with hub.database.read() as session:
        assert session.scalar(select(Project.deleted_at).where(Project.normalized == "math-env")) is not None


# Transfer


@pytest.fixture
def lab(world, people):
    world.organisation("lab", ada="owner", bob="owner")


def transfer(client, env, to, person):
    return client.post(f"{env}/transfer", json={"to": to}, headers=person.headers)


def test_a_transfer_moves_everything_but_the_people(client, world, hub, env, people, lab):
    client.put(f"{env}/collaborators/cyd", json={"role": "maintainer"}, headers=people["ada"].headers)
    token = world.token("cyd", project="ada/math-env")
    moved = transfer(client, env, "lab", people["ada"])
    assert moved.status_code == 200 and moved.json()["owner"] == "lab"
    assert status_of(client, "/lab/math-env/simple/", headers=people["bob"].headers) == 200
    # item 41: who had access through the old owner or as a collaborator has none
    assert status_of(client, f"{API}/lab/math-env/settings", headers=people["cyd"].headers) == 404
    assert client.get("/api/v1/whoami", headers=bearer(token)).status_code == 401


def test_item_41_the_old_owner_is_a_stranger_after_leaving(client, env, people, world, lab):
    assert transfer(client, env, "lab", people["ada"]).is_success
    assert client.delete("/api/v1/organisations/lab/members/ada", headers=people["ada"].headers).status_code == 204
    assert status_of(client, f"{API}/lab/math-env/settings", headers=people["ada"].headers) == 404


def test_nothing_else_can_take_the_place_of_what_moved(client, hub, world, env, people, lab):
    transfer(client, env, "lab", people["ada"])
    assert status_of(client, f"{env}/settings", headers=people["ada"].headers) == 404
    with hub.database.read() as session:
        rows = session.scalars(select(Project).where(Project.normalized == normalised("math-env"))).all()
    assert {(row.deleted_at is None, row.moved_to_id is None) for row in rows} == {(True, True), (False, False)}


def test_what_moved_may_come_back(client, env, people, lab):
    assert transfer(client, env, "lab", people["ada"]).is_success
    assert transfer(client, f"{API}/lab/math-env", "ada", people["ada"]).is_success
    assert transfer(client, env, "lab", people["ada"]).is_success


@pytest.mark.parametrize("to", ["eve", "others", "nobody", "ada"])
def test_it_is_given_to_nobody_who_did_not_let_one_in(client, world, env, people, to):
    world.organisation("others", bob="owner", ada="maintainer")
    assert transfer(client, env, to, people["ada"]).status_code in (403, 404, 409)
    assert status_of(client, f"{env}/settings", headers=people["ada"].headers) == 200


@pytest.mark.parametrize("name", ["math-env", "math_env", "mathenv"])
def test_a_name_that_the_new_owner_has_or_had_is_refused(client, env, people, world, lab, name):
    world.release(f"lab/{name}")
    client.delete(f"{API}/lab/{name}", headers=people["bob"].headers)
    answer = transfer(client, env, "lab", people["ada"])
    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")


# Stars


def test_a_star_counts_once_for_each_user(client, env, people):
    client.put(f"{env}/visibility", json={"visibility": "public"}, headers=people["ada"].headers)
    for _ in range(2):
        assert client.put(f"{env}/stars", headers=people["bob"].headers).json()["n_stars"] == 1
    found = client.put(f"{env}/stars", headers=people["eve"].headers).json()
    assert (found["n_stars"], found["is_starred"]) == (2, True)
    assert [s["name"] for s in client.get("/api/v1/stars", headers=people["eve"].headers).json()] == ["math-env"]
    for _ in range(2):
        assert client.delete(f"{env}/stars", headers=people["eve"].headers).json()["n_stars"] == 1
    assert client.put(f"{env}/stars").status_code == 401


def test_a_star_on_what_became_private_is_not_shown(client, env, people):
    client.put(f"{env}/visibility", json={"visibility": "public"}, headers=people["ada"].headers)
    client.put(f"{env}/stars", headers=people["bob"].headers)
    client.put(f"{env}/visibility", json={"visibility": "private"}, headers=people["ada"].headers)
    assert client.get("/api/v1/stars", headers=people["bob"].headers).json() == []


def test_a_token_that_reads_gives_no_star(client, env, people, world):
    answer = client.put(f"{env}/stars", headers=bearer(world.token("ada", "read")))
    assert (answer.status_code, answer.json()["code"]) == (403, "token_scope")


def test_every_deed_is_in_the_audit_log_of_its_owner(client, env, people, lab):
    ada = people["ada"]
    client.put(f"{env}/visibility", json={"visibility": "public"}, headers=ada.headers)
    client.put(f"{env}/status", json={"status": "deprecated"}, headers=ada.headers)
    client.put(f"{env}/collaborators/bob", json={"role": "reader"}, headers=ada.headers)
    client.delete(f"{env}/collaborators/bob", headers=ada.headers)
    transfer(client, env, "lab", ada)
    found = client.get("/api/v1/audit", params={"owner": "ada"}, headers=ada.headers).json()["events"]
    assert [event["action"] for event in found] == [
        "project.transfer", "collaborator.remove", "collaborator.set", "project.status", "project.visibility",
    ]  # fmt: skip
