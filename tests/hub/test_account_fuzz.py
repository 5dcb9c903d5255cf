"""Whatever is sent to the addresses of accounts and settings, the hub makes no mistake of its own."""

import json
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ODD_TEXT = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["", "\0", "a\0b", "\ud800", "x" * 5000, "ada", "lab", "../..", "%00", "admin", "owner", "null", "🙂"]
    ),
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        ODD_TEXT,
        st.sampled_from([0, -1, 90, 1e308, 2**63, "read", "publish", "private", "reader", "ada/math-env"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(ODD_TEXT, inner, max_size=3)),
    max_leaves=5,
)
FIELDS = (
    "name", "scope", "owner", "project", "days", "role", "status", "reason", "visibility", "to", "publish_answers",
    "display_name", "about", "client_name", "device_code", "old", "new", "password", "is_active",
)  # fmt: skip
ADDRESSES = (
    "POST /tokens", "POST /organisations", "PATCH /accounts/ada", "PUT /organisations/lab/members/{odd}",
    "PUT /organisations/{odd}/members/bob", "POST /device", "POST /device/token", "POST /device/{odd}/allow",
    "GET /device/{odd}", "PUT /projects/ada/math-env/status", "PUT /projects/ada/math-env/visibility",
    "PATCH /projects/ada/math-env/settings", "PUT /projects/ada/{odd}/visibility", "GET /accounts/{odd}",
    "POST /projects/ada/math-env/transfer", "PUT /projects/ada/math-env/collaborators/{odd}", "DELETE /tokens/{odd}",
    "PATCH /users/{odd}",
    "GET /audit?owner={odd}&action={odd}", "GET /audit?after={odd}", "POST /users", "DELETE /projects/ada/{odd}",
)  # fmt: skip


@pytest.fixture
def ada(world):
    ada = world.user("ada", is_admin=True)
    world.user("bob")
    world.organisation("lab", ada="owner")
    world.release("ada/math-env")
    return ada


@pytest.mark.parametrize("address", ADDRESSES)
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_body_and_no_address_makes_the_hub_fail(client, ada, address, data):
    method, _, path = address.partition(" ")
    odd = data.draw(ODD_TEXT.filter(lambda text: text not in ("", "math-env")))
    path = path.replace("{odd}", quote(odd.encode("utf-8", "surrogatepass"), safe=""))
    body = data.draw(st.one_of(st.dictionaries(st.sampled_from(FIELDS) | ODD_TEXT, VALUES, max_size=4), VALUES))
    answer = client.request(
        method, f"/api/v1{path}", content=json.dumps(body), headers=ada.headers | {"Content-Type": "application/json"}
    )
    assert answer.status_code < 500, answer.text


@pytest.mark.parametrize(
    "body", [r'{"\ud800": 1}', r'{"name": "\ud800"}', '{"name": NaN}', "[" * 100_000, '"' + "x" * 100_000]
)
def test_what_json_cannot_carry_is_refused_and_the_answer_is_json(client, ada, body):
    answer = client.post("/api/v1/tokens", content=body, headers=ada.headers | {"Content-Type": "application/json"})
    assert answer.status_code in (400, 422) and answer.json()["detail"]
