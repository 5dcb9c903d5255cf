"""Rate limits: counted over all workers, in sliding windows, in few writes."""

import threading

import pytest
from sqlalchemy import func, select
from starlette.testclient import TestClient

from hub_server.app import create_app
from hub_server.db import Database
from hub_server.errors import TooMany
from hub_server.hub import Hub
from hub_server.limits import Limit, Limiter, subject_of
from hub_server.models import RateCount

LIMIT = Limit("test", 10, 60)


class Clock:
    def __init__(self) -> None:
        self.now = 6_000.0  # the start of a window

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limiter(hub, clock):
    return Limiter(hub.database, clock)


def hits(limiter, limit=LIMIT, subject="ada", tries=100):
    """How many pass before one is refused, and the seconds it is told to wait."""
    for number in range(tries):
        try:
            limiter.spend(limit, subject)
        except TooMany as refused:
            return number, refused.retry_after_s
    return tries, None


def test_what_the_limit_says_passes_and_no_more(limiter):
    assert hits(limiter)[0] == 10
    assert hits(limiter)[0] == 0
    assert hits(limiter, subject="bob")[0] == 10
    assert hits(limiter, Limit("other", 3, 60))[0] == 3


@pytest.mark.parametrize("elapsed_s", [0, 10, 30, 59])
def test_whoever_waits_as_told_passes(limiter, clock, elapsed_s):
    clock.now += elapsed_s
    _, wait_s = hits(limiter)
    clock.now += wait_s - 1.001
    assert hits(limiter)[0] == 0, "a second earlier it must still be refused"
    clock.now += 1.001
    assert hits(limiter)[0] >= 1


def test_the_edge_of_a_window_gives_no_second_helping(limiter, clock):
    clock.now += 59
    assert hits(limiter)[0] == 10
    clock.now += 2
    assert hits(limiter)[0] <= 1


def test_over_a_long_time_the_rate_is_the_limits(limiter, clock):
    passed = 0
    for _ in range(600):
        clock.now += 1
        passed += hits(limiter, tries=1)[0]
    assert 90 <= passed <= 110


@pytest.mark.parametrize("lease", [1, 4])
def test_item_42_several_workers_together_keep_the_limit(hub, clock, lease):
    limit = Limit("shared", 40, 60, lease)
    databases = [Database(hub.settings.database) for _ in range(4)]
    passed = []

    def work(database):
        limiter = Limiter(database, clock)
        passed.append(hits(limiter, limit)[0])

    threads = [threading.Thread(target=work, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for database in databases:
        database.close()
    assert sum(passed) == 40 if lease == 1 else 40 - 3 * 4 <= sum(passed) <= 40


def test_a_lease_saves_writes(limiter, hub, clock, monkeypatch):
    writes = []
    write = hub.database.write
    monkeypatch.setattr(hub.database, "write", lambda **options: writes.append(1) or write(**options))
    assert hits(limiter, Limit("leased", 100, 60, lease=10), tries=100) == (100, None)
    assert len(writes) == 10


def test_what_an_old_window_left_of_a_lease_is_not_spent_in_the_next(limiter, clock):
    limit = Limit("leased", 10, 60, lease=10)
    limiter.spend(limit, "ada")
    clock.now += 60
    assert hits(limiter, limit)[0] == 0, "ten were taken at the start of the window before, all still in view"


def test_counts_do_not_pile_up(limiter, hub, clock):
    for number in range(50):
        limiter.spend(LIMIT, f"user-{number}")
    clock.now += 3 * 3600
    limiter.spend(LIMIT, "ada")
    with hub.database.read() as session:
        assert session.scalar(select(func.count()).select_from(RateCount)) == 1


@pytest.mark.parametrize(
    ("address", "subject"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:ffff::2", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("testclient", "testclient"),
    ],
)
def test_one_customer_of_ipv6_is_one_subject(address, subject):
    assert subject_of(address) == subject


# Over HTTP


def limited(hub, **limits):
    settings = hub.settings.model_copy(update=limits)
    return TestClient(
        create_app(hub=Hub(settings, hub.database, hub.storage)), "https://hub.test", follow_redirects=False
    )


def test_item_42_a_flood_of_searches_is_429_and_plain_reading_is_not(hub, world):
    ada = world.user("ada")
    client = limited(hub, searches_per_minute=20)
    codes = [client.get("/api/v1/projects?search=math").status_code for _ in range(25)]
    assert codes[:20] == [200] * 20 and set(codes[20:]) <= {429, 200} and codes[-1] == 429
    answer = client.get("/api/v1/projects?search=math")
    assert answer.status_code == 429 and 0 < int(answer.headers["retry-after"]) <= 120
    assert client.get("/api/v1/accounts/ada").status_code == 200
    assert client.get("/api/v1/projects?search=math", headers=ada.headers).status_code == 200, "another subject"


def test_item_42_a_flood_of_uploads_is_429(hub, world):
    ada = world.user("ada")
    client = limited(hub, uploads_per_hour=5)
    codes = [client.post("/legacy/", files={"content": b"x"}, headers=ada.headers).status_code for _ in range(6)]
    assert codes[:5] == [400] * 5 and codes[5] == 429


def test_item_42_a_forged_forwarded_address_is_no_new_subject(hub):
    client = limited(hub, searches_per_minute=5)
    codes = [
        client.get("/api/v1/projects?search=math", headers={"X-Forwarded-For": f"192.0.2.{number}"}).status_code
        for number in range(6)
    ]
    assert codes == [200] * 5 + [429]
