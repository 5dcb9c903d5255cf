"""Tool definitions from functions, and the arguments that models really write."""

import enum
import functools
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionToolParam
from pydantic import BaseModel

from verifiers.errors import ToolParseError
from verifiers.tools import MAX_KEPT_ARGUMENTS, as_tool, kept_arguments, parse_arguments, tool_from
from verifiers.types import Tool


@dataclass
class Point:
    x: int
    y: int = 0


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Query(BaseModel):
    text: str
    limit: int = 3


def schema(annotation, **defaults) -> dict:
    def tool(value): ...

    tool.__annotations__ = {"value": annotation}
    if defaults:
        tool.__defaults__ = (defaults["default"],)
    return tool_from(tool).parameters


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, {"type": "integer"}),
        (str, {"type": "string"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list, {"type": "array"}),
        (dict, {"type": "object"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Any, {}),
    ],
)
def test_annotations_become_schemas(annotation, expected):
    assert schema(annotation) == {
        "type": "object", "properties": {"value": expected}, "required": ["value"], "additionalProperties": False,
    }  # fmt: skip


@pytest.mark.parametrize("annotation", [Optional[int], int | None])  # noqa: UP045
def test_optional_may_be_null(annotation):
    parameters = schema(annotation, default=None)
    assert {"type": "integer"} in parameters["properties"]["value"]["anyOf"]
    assert {"type": "null"} in parameters["properties"]["value"]["anyOf"]
    assert parameters["required"] == [] and "default" not in parameters["properties"]["value"]


def followed(parameters: dict) -> dict:
    value = parameters["properties"]["value"]
    return parameters["$defs"][value["$ref"].rpartition("/")[2]] if "$ref" in value else value


@pytest.mark.parametrize("annotation", [Point, Query, Annotated[Query, "a note"]])
def test_structured_arguments_describe_their_fields(annotation):
    found = followed(schema(annotation))
    assert found["type"] == "object" and len(found["required"]) == 1
    assert {p["type"] for p in found["properties"].values()} <= {"integer", "string"}


def test_an_enum_lists_its_values():
    assert sorted(followed(schema(Colour))["enum"]) == ["blue", "red"]


def test_a_list_of_models_keeps_what_it_refers_to():
    parameters = schema(list[Query])
    name = parameters["properties"]["value"]["items"]["$ref"].rpartition("/")[2]
    assert parameters["$defs"][name]["properties"]["text"]["type"] == "string"


def google(a: int, b: str = "x", *, c: bool = False) -> str:
    """Do it.

    In two lines.

    Args:
        a: The first,
            which goes on.
        b (str): The second: with a colon.
        c: Third.

    Returns:
        text: not an argument
    """


def numpy(a: int, b: str = "x", *, c: bool = False) -> str:
    """Do it.

    In two lines.

    Parameters
    ----------
    a : int
        The first,
        which goes on.
    b : str, optional
        The second: with a colon.
    c
        Third.

    Returns
    -------
    text : str
        Not an argument.
    """


def sphinx(a: int, b: str = "x", *, c: bool = False) -> str:
    """Do it.

    In two lines.

    :param a: The first, which goes on.
    :param str b: The second: with a colon.
    :param c: Third.
    :returns: Not an argument.
    """


@pytest.mark.parametrize("func", [google, numpy, sphinx])
def test_every_docstring_style_describes_the_arguments(func):
    tool = tool_from(func)
    assert (tool.name, tool.description) == (func.__name__, "Do it.\n\nIn two lines.")
    assert tool.parameters["properties"] == {
        "a": {"type": "integer", "description": "The first, which goes on."},
        "b": {"type": "string", "description": "The second: with a colon.", "default": "x"},
        "c": {"type": "boolean", "description": "Third.", "default": False},
    }
    assert tool.parameters["required"] == ["a"]


def test_no_docstring_and_no_annotations_are_no_obstacle():
    def bare(a, b=1): ...

    tool = tool_from(bare)
    assert tool.description == "" and tool.parameters["properties"] == {"a": {}, "b": {"default": 1}}


def test_skipped_arguments_are_hidden_and_need_no_schema():
    def act(move: str, state: object, session): ...

    assert list(tool_from(act, skip=("state", "session")).parameters["properties"]) == ["move"]


class Shop:
    def buy(self, item: str) -> str:
        """Buy it."""

    def __call__(self, item: str) -> str:
        """Ask for it."""


@pytest.mark.parametrize(
    ("func", "name", "description"),
    [
        (Shop().buy, "buy", "Buy it."),
        (Shop(), "Shop", "Ask for it."),
        (functools.partial(google, 1), "google", "Do it.\n\nIn two lines."),
    ],
    ids=["method", "object", "partial"],
)
def test_methods_objects_and_partials_are_tools(func, name, description):
    tool = tool_from(func)
    assert (tool.name, tool.description) == (name, description) and "self" not in tool.parameters["properties"]


def test_arguments_that_cannot_be_named_are_refused():
    def many(*items): ...

    with pytest.raises(TypeError, match=r"tool many: '\*items' cannot be filled by name"):
        tool_from(many)
    with pytest.raises(TypeError, match="tool tool, argument value: no JSON Schema for the annotation"):
        schema(Shop)


OPENAI = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    "written", [OPENAI, OPENAI["function"], ChatCompletionToolParam(**OPENAI), Tool(**OPENAI["function"])]
)
def test_every_spelling_of_a_tool_becomes_the_same(written):
    assert as_tool(written) == Tool("f", "d", {"type": "object"}) and as_tool(written).wire() == OPENAI


# --- arguments


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('{"x": 1}', {"x": 1}), (' {"x": 1}\n', {"x": 1}), ('"{\\"x\\": 1}"', {"x": 1}), ('{}""', {}), ("", {}),
        ("null", {}), (None, {}), ({"x": 1}, {"x": 1}), ('{"x": "a\nb"}', {"x": "a\nb"}), ('{"x": 1}\'', {"x": 1}),
        ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}), ('"null"', {}), ('""', {}),
    ],
)  # fmt: skip
def test_arguments_that_can_be_understood_are(written, meant):
    assert parse_arguments(written) == meant
    assert json.loads(kept_arguments(written)) == meant


@pytest.mark.parametrize(
    "written",
    ['{"x": 1, "y":', "[1]", [1], "3", "true", '"text"', "x = 1", '{"a": 1}{"b": 2}', "{'x': 1}", "[" * 100_000,
     '{"a":' * 100_000, json.dumps(json.dumps(json.dumps(json.dumps({}))))],
)  # fmt: skip
def test_arguments_that_cannot_be_understood_are_told_so_in_a_few_words(written):
    with pytest.raises(ToolParseError, match=r"the arguments (must be a JSON object|are n)") as raised:
        parse_arguments(written)
    assert len(str(raised.value)) < 400
    kept = json.loads(kept_arguments(written))
    assert list(kept) == ["invalid_arguments"] and len(kept["invalid_arguments"]) < 1100


def test_huge_arguments_are_understood_and_kept_cut():
    written = json.dumps({"x": "y" * 200_000})
    assert len(parse_arguments(written)["x"]) == 200_000
    kept = kept_arguments(written)
    assert len(kept) < 2_000 < MAX_KEPT_ARGUMENTS and "more characters" in json.loads(kept)["cut_arguments"]


def refuse(constant):
    raise ValueError(constant)


@given(st.one_of(st.text(), st.text(alphabet='{}[]":,\\1anulINfity \n'), st.recursive(
    st.none() | st.floats() | st.text() | st.integers(), lambda kids: st.dictionaries(st.text(), kids) | st.lists(kids)
).map(json.dumps)))  # fmt: skip
def test_what_stays_in_the_conversation_is_always_an_object_any_server_can_decode(written):
    assert isinstance(json.loads(kept_arguments(written), parse_constant=refuse), dict)
    try:
        assert isinstance(parse_arguments(written), dict)
    except ToolParseError:
        pass
