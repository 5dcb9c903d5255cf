"""The audit log: who reads what of it."""

import pytest

from hub_server.errors import Forbidden, NotFound, NotSignedIn, Unprocessable
from hub_server.models import AuditEvent
from hub_server.principal import NOBODY
from hub_server.services import organisations, projects
from hub_server.services.audit_log import read


@pytest.fixture
def people(hub, world):
    found = {name: world.user(name, is_admin=name == "root").principal for name in ("ada", "bob", "eve", "root")}
    world.organisation("lab", ada="owner", bob="maintainer")
    world.release("lab/math-env")
    world.release("lab/word-env")
    projects.set_status(hub, found["bob"], "lab", "math-env", "deprecated")
    projects.set_status(hub, found["bob"], "lab", "word-env", "archived")
    organisations.set_member(hub, found["ada"], "lab", "eve", "reader")
    return found


def actions(hub, who, **wanted):
    return [event.action for event in read(hub, who, **wanted).events]


def test_an_owner_reads_what_happened_to_all_it_owns(hub, people):
    assert actions(hub, people["ada"], owner="lab") == ["member.set", "project.status", "project.status"]
    assert actions(hub, people["ada"], owner="lab", project="math-env") == ["project.status"]
    assert actions(hub, people["ada"], owner="lab", action="member") == ["member.set"]
    assert actions(hub, people["ada"], owner="lab", action="project.status", actor="BOB") == ["project.status"] * 2
    assert actions(hub, people["ada"], owner="lab", action="%") == []


def test_others_read_nothing(hub, people):
    for name in ("bob", "eve"):
        with pytest.raises(Forbidden):
            read(hub, people[name], owner="lab")
        with pytest.raises(Forbidden):
            read(hub, people[name], owner="lab", project="math-env")
        with pytest.raises(Forbidden):
            read(hub, people[name])
    with pytest.raises(NotSignedIn):
        read(hub, NOBODY, owner="lab")
    with pytest.raises(NotFound):
        read(hub, people["ada"], owner="nobody")


def test_an_administrator_reads_all_of_it(hub, people):
    assert len(actions(hub, people["root"])) == 3
    with pytest.raises(Unprocessable):
        read(hub, people["root"], project="math-env")


def test_pages_follow_each_other_without_gap_or_repeat(hub, people):
    seen, after = [], None
    while True:
        page = read(hub, people["root"], after=after, limit=2)
        seen += page.events
        if page.after is None:
            break
        after = page.after
    assert [event.id for event in seen] == sorted({event.id for event in seen}, reverse=True) and len(seen) == 3


def test_addresses_are_the_administrators_and_ones_own(hub, people):
    with hub.database.write() as session:
        for event in session.query(AuditEvent):
            event.address = "192.0.2.1"
    by_ada = {event.actor: event.address for event in read(hub, people["ada"], owner="lab").events}
    assert by_ada == {"ada": "192.0.2.1", "bob": None}
    assert {event.address for event in read(hub, people["root"]).events} == {"192.0.2.1"}


def test_item_41_the_past_of_what_moved_stays_with_the_owner_before(hub, people, world):
    organisations.create_organisation(hub, people["ada"], "other")
    projects.transfer(hub, people["ada"], "lab", "math-env", "other")
    assert actions(hub, people["ada"], owner="other", project="math-env") == ["project.receive"]
    assert "project.transfer" in actions(hub, people["ada"], owner="lab")


def test_a_deed_that_was_refused_leaves_no_trace_of_having_been_done(hub, people):
    with pytest.raises(Forbidden):
        projects.delete_project(hub, people["bob"], "lab", "math-env")
    assert "project.delete" not in actions(hub, people["root"])
