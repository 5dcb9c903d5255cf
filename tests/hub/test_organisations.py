"""Organisations, members and roles."""

import threading

import pytest

from hub_server.errors import Conflict, Forbidden, NotFound, Unprocessable
from hub_server.services import organisations
from hub_server.services.organisations import (
    create_organisation,
    edit_profile,
    members,
    profile,
    remove_member,
    set_member,
)


@pytest.fixture
def people(world):
    return {name: world.user(name).principal for name in ("ada", "bob", "cyd", "eve")}


@pytest.fixture
def lab(world, people):
    world.organisation("lab", ada="owner", bob="maintainer", cyd="reader")


def roles(hub, who):
    return {member.name: member.role for member in members(hub, who, "lab")}


def test_whoever_makes_an_organisation_owns_it(hub, people):
    made = create_organisation(hub, people["ada"], "Lab", "The lab")
    assert (made.name, made.kind, made.role) == ("lab", "organisation", "owner")
    assert roles(hub, people["ada"]) == {"ada": "owner"}
    assert [found.name for found in organisations.organisations_of(hub, people["ada"])] == ["lab"]


def test_members_are_seen_by_members(hub, people, lab):
    assert roles(hub, people["cyd"]) == {"ada": "owner", "bob": "maintainer", "cyd": "reader"}
    with pytest.raises(Forbidden):
        members(hub, people["eve"], "lab")


@pytest.mark.parametrize("name", ["bob", "cyd", "eve"])
def test_only_owners_set_and_remove_members(hub, people, lab, name):
    for deed in (
        lambda who: set_member(hub, who, "lab", "eve", "reader"),
        lambda who: set_member(hub, who, "lab", "ada", "reader"),
        lambda who: remove_member(hub, who, "lab", "ada"),
        lambda who: edit_profile(hub, who, "lab", about="ours now"),
    ):
        with pytest.raises(Forbidden):
            deed(people[name])
    assert roles(hub, people["ada"]) == {"ada": "owner", "bob": "maintainer", "cyd": "reader"}


@pytest.mark.parametrize("role", ["maintainer", "owner"])
def test_item_41_a_member_does_not_raise_its_own_role(hub, people, lab, role):
    with pytest.raises(Forbidden):
        set_member(hub, people["cyd"], "lab", "cyd", role)
    assert roles(hub, people["cyd"])["cyd"] == "reader"


@pytest.mark.parametrize("member", [None, "reader"])
def test_item_41_not_even_an_administrator_of_the_hub_raises_its_own_role(hub, world, people, lab, member):
    root = world.user("root", is_admin=True).principal
    if member:
        set_member(hub, people["ada"], "lab", "root", member)
    with pytest.raises(Forbidden) as refused:
        set_member(hub, root, "lab", "root", "owner")
    assert refused.value.code == "own_role"
    set_member(hub, root, "lab", "eve", "owner")
    assert roles(hub, root)["eve"] == "owner"


def test_the_last_owner_cannot_leave_or_step_down(hub, people, lab):
    for deed in (
        lambda: remove_member(hub, people["ada"], "lab", "ada"),
        lambda: set_member(hub, people["ada"], "lab", "ada", "reader"),
    ):
        with pytest.raises(Conflict) as refused:
            deed()
        assert refused.value.code == "last_owner"
    set_member(hub, people["ada"], "lab", "bob", "owner")
    remove_member(hub, people["ada"], "lab", "ada")
    assert roles(hub, people["bob"]) == {"bob": "owner", "cyd": "reader"}


def test_two_owners_who_leave_at_once_leave_one_behind(hub, people, lab):
    set_member(hub, people["ada"], "lab", "bob", "owner")
    start, ends = threading.Barrier(2), []

    def leave(name):
        start.wait()
        try:
            remove_member(hub, people[name], "lab", name)
            ends.append("left")
        except Conflict:
            ends.append("stayed")

    threads = [threading.Thread(target=leave, args=(name,)) for name in ("ada", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == ["left", "stayed"]


def test_a_member_may_leave(hub, people, lab):
    remove_member(hub, people["cyd"], "lab", "cyd")
    with pytest.raises(Forbidden):
        members(hub, people["cyd"], "lab")
    with pytest.raises(NotFound):
        remove_member(hub, people["ada"], "lab", "cyd")


def test_item_41_access_ends_with_membership_in_the_next_request(client, world, hub, people, lab):
    cyd_headers = {"Authorization": f"Bearer {world.token('cyd')}"}
    world.release("lab/secret-env")
    assert client.get("/lab/secret-env/simple/", headers=cyd_headers).is_success
    remove_member(hub, people["ada"], "lab", "cyd")
    assert client.get("/lab/secret-env/simple/", headers=cyd_headers).status_code == 404


def test_a_role_on_one_environment_goes_with_the_membership(client, world, hub, people, lab):
    world.project("lab/secret-env", bob="maintainer")
    world.release("lab/secret-env")
    remove_member(hub, people["ada"], "lab", "bob")
    headers = {"Authorization": f"Bearer {world.token('bob')}"}
    assert client.get("/api/v1/projects/lab/secret-env/settings", headers=headers).status_code == 404


@pytest.mark.parametrize("role", ["admin", "", "Owner", "owner "])
def test_an_unknown_role_is_refused(hub, people, lab, role):
    with pytest.raises(Unprocessable):
        set_member(hub, people["ada"], "lab", "eve", role)


def test_a_user_has_no_members(hub, people):
    with pytest.raises(NotFound):
        set_member(hub, people["ada"], "ada", "bob", "reader")


def test_an_organisation_is_no_member(hub, world, people, lab):
    world.organisation("other", ada="owner")
    with pytest.raises(NotFound):
        set_member(hub, people["ada"], "lab", "other", "reader")


def test_what_is_not_given_of_a_profile_stays(hub, people, lab):
    edit_profile(hub, people["ada"], "lab", display_name="The lab", about="# We")
    edit_profile(hub, people["ada"], "lab", about="# We measure")
    found = profile(hub, people["eve"], "lab")
    assert (found.display_name, found.about, found.role) == ("The lab", "# We measure", None)
    with pytest.raises(Unprocessable):
        edit_profile(hub, people["ada"], "lab", display_name="x" * 201)


def test_the_api_does_all_of_it(client, world):
    ada, bob = world.user("ada"), world.user("bob")
    assert client.post("/api/v1/organisations", json={"name": "lab"}, headers=ada.headers).status_code == 201
    member = client.put("/api/v1/organisations/lab/members/bob", json={"role": "reader"}, headers=ada.headers)
    assert member.json()["role"] == "reader"
    assert [m["name"] for m in client.get("/api/v1/organisations/lab/members", headers=bob.headers).json()] == [
        "ada",
        "bob",
    ]
    assert [o["name"] for o in client.get("/api/v1/organisations", headers=bob.headers).json()] == ["lab"]
    assert client.delete("/api/v1/organisations/lab/members/bob", headers=bob.headers).status_code == 204
    assert client.patch("/api/v1/accounts/lab", json={"about": "x"}, headers=ada.headers).json()["about"] == "x"
    assert client.get("/api/v1/accounts/nobody").status_code == 404
