"""Whatever is sent to the JSON API, the answer is one that its own description allows, and never a mistake of the hub.

Requests are made from the description itself: right ones, ones with a wrong value, ones with rubbish.
"""

import json
import re
from urllib.parse import quote

import httpx2 as httpx
import pytest
from hub_evaluations import pusher
from hub_packages import Package
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

EXAMPLES = 12  # requests of one route by one person
METHODS = ("get", "patch", "put", "post", "delete")
FAILURES = range(400, 500)
PROBLEM = "application/problem+json"
KNOWN = {
    "owner": ["ada", "bob", "lab", "nobody"],
    "name": ["sums", "closed", "none-such"],
    "user": ["ada", "bob", "nobody"],
    "organisation": ["lab", "nobody"],
    "version": ["1.0.0", "2.0.0", "latest"],
    "project": ["ada/sums", "bob/closed", "x"],
}
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "\0", "..", "%00", "' OR 1=1 --", "a" * 5_000, "ünï", "\U0001f9ee", "-1", "1e999", "null", "[]"]
    ),
)
NUMBERS = st.one_of(st.integers(-3, 200), st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**30]))
RUBBISH = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture
def people(world, client, known):
    """Who asks: nobody, somebody with two environments and an organisation, and an administrator."""
    ada, root = world.user("ada"), world.user("root", is_admin=True)
    world.user("bob")
    world.organisation("lab", ada="owner", bob="reader")
    world.release("ada/sums", "1.0.0", visibility="public", package=Package("sums"))
    world.release("bob/closed")
    known["evaluation_id"] = [pusher(world, client, ada, "ada/sums").push([[1.0, 0.0], [None, 0.5]])]
    known["candidate_id"] = known["evaluation_id"]
    return {"nobody": {}, "ada": ada.headers, "root": root.headers}


@pytest.fixture
def known():
    """Words that mean something in this hub, so that not every request ends at "not found"."""
    return {name: list(words) for name, words in KNOWN.items()}


@pytest.fixture
def description(app, known):
    """What the API says of itself at /api/v1/openapi.json; with `known` beside it."""
    said = next(route.app for route in app.routes if getattr(route, "path", "") == "/api/v1").openapi()
    return {**said, "x-known": known}


def operations(description):
    """What ends things comes last, and the end of the token in use at the very last."""
    found = [
        (method, path, operation)
        for path, item in description["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    ]
    return sorted(
        found, key=lambda one: (one[1].endswith("/current"), one[0] == "delete", METHODS.index(one[0]), one[1])
    )


def resolved(schema, description):
    while "$ref" in schema:
        schema = description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def values(schema, description, name="", depth=0):
    """Mostly what the schema asks for, now and then what it does not."""
    schema = resolved(schema, description)
    if depth > 4:
        return RUBBISH
    known = description["x-known"].get(name)
    if known:
        # The first is one that is there; what hypothesis makes of texts is rarely so.
        return st.integers(0, 9).flatmap(
            lambda n: st.just(known[0]) if n < 6 else st.sampled_from(known) if n < 8 else TEXTS
        )
    wanted = right(schema, description, depth)
    return st.integers(0, 9).flatmap(lambda n: wanted if n < 8 else RUBBISH)


def right(schema, description, depth):
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    for either in ("anyOf", "oneOf", "allOf"):
        if either in schema:
            return st.one_of(*(values(one, description, depth=depth + 1) for one in schema[either]))
    match schema.get("type"):
        case "string":
            return TEXTS
        case "integer":
            return NUMBERS
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False) | NUMBERS
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(values(schema.get("items", {}), description, depth=depth + 1), max_size=3)
        case "object" if "properties" in schema:
            wanted = set(schema.get("required", ()))
            fields = {key: values(one, description, key, depth + 1) for key, one in schema["properties"].items()}
            return st.fixed_dictionaries(
                {key: value for key, value in fields.items() if key in wanted},
                optional={key: value for key, value in fields.items() if key not in wanted},
            )
        case _:
            return RUBBISH


def as_text(value):
    return value if isinstance(value, str) else json.dumps(value)


@st.composite
def requests(draw, path, operation, description):
    """(address, query, body or None)"""
    query = []
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "header":
            continue
        schema = parameter.get("schema", {})
        if parameter["in"] == "path":
            value = as_text(draw(values(schema, description, parameter["name"])))
            place = re.compile("{" + parameter["name"] + r"(:\w+)?}")
            path = quote(value or "-", safe="").join(place.sub("\0", path).split("\0"))
        elif parameter.get("required") or draw(st.booleans()):
            value = draw(values(schema, description, parameter["name"]))
            query += [(parameter["name"], as_text(one)) for one in (value if isinstance(value, list) else [value])]
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        return path, query, draw(values(content["application/json"].get("schema", {}), description))
    return path, query, None


def problems(answer, operation, description):
    """What is wrong with an answer; empty when nothing is."""
    status, kind = answer.status_code, answer.headers.get("content-type", "")
    if status >= 500:
        return f"a mistake of the hub: {status} {answer.text[:500]}"
    if status in FAILURES:
        if not kind.startswith(PROBLEM):
            return f"{status} as {kind}, not as problem details"
        said = answer.json()
        if said.get("status") != status or not said.get("code") or not said.get("detail"):
            return f"{status} with incomplete problem details: {said}"
        return ""
    if 300 <= status < 400:
        return ""
    declared = operation["responses"].get(str(status))
    if declared is None:
        return f"{status}, and the description knows {sorted(operation['responses'])}"
    schema = declared.get("content", {}).get("application/json", {}).get("schema")
    if schema and kind.startswith("application/json"):
        checker = Draft202012Validator({**schema, "components": description["components"]})
        wrong = next(iter(checker.iter_errors(answer.json())), None)
        if wrong is not None:
            return f"{status} with a body that its schema does not allow: {wrong.message[:300]} at {list(wrong.path)}"
    return ""


@pytest.mark.parametrize("person", ["nobody", "ada", "root"])
def test_no_request_makes_the_api_break_its_own_description(client, people, description, person):
    assert len(operations(description)) > 40
    found = {}
    for method, path, operation in operations(description):
        wrong = first_problem(client, people[person], description, method, path, operation)
        if wrong:
            found[f"{method} {path}"] = wrong
    assert not found, "\n".join(f"{route}: {what}" for route, what in found.items())


def first_problem(client, who, description, method, path, operation):
    """Of some requests to one route; `None` when all its answers are as they should be."""
    found = []

    @seed(0)
    @settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(request=requests(path, operation, description))
    def asked(request):
        address, query, body = request
        headers = dict(who)
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = None if body is None else json.dumps(body)
        answer = client.request(method, f"/api/v1{address}", params=query, headers=headers, content=content)
        wrong = problems(answer, operation, description)
        if wrong:
            found.append((wrong, address, query, body))

    asked()
    return found[0] if found else None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(500, json={}), "a mistake of the hub"),
        (httpx.Response(404, text="no"), "not as problem details"),
        (httpx.Response(404, json={"status": 404}, headers={"Content-Type": PROBLEM}), "incomplete"),
        (httpx.Response(204, json={}), "the description knows"),
        (httpx.Response(200, json={"name": 1}), "its schema does not allow"),
    ],
)
def test_an_answer_that_breaks_the_description_is_noticed(description, answer, said):
    operation = description["paths"]["/whoami"]["get"]
    assert said in problems(answer, operation, description)


@pytest.mark.parametrize("body", [b"", b"{", b"[1", b"\xff\xfe", b"[" * 20_000, b"0" * 100_000])
def test_a_body_that_is_no_json_is_the_senders_mistake(client, people, description, body):
    for method, path, operation in operations(description):
        if "application/json" not in operation.get("requestBody", {}).get("content", {}):
            continue
        for name, known in KNOWN.items():
            path = path.replace("{" + name + "}", known[0])
        address = re.sub(r"\{\w+(:\w+)?\}", "1", path)
        headers = {**people["ada"], "Content-Type": "application/json"}
        answer = client.request(method, f"/api/v1{address}", content=body, headers=headers)
        assert answer.status_code in FAILURES, (method, address, answer.text)
        assert answer.headers["content-type"].startswith(PROBLEM)
