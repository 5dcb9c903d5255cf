"""`PantryAPI`: a simulated service for our own multi-turn rows, in the manner of the leaderboard's."""

from __future__ import annotations

from typing import Any


class PantryAPI:
    """Shelves with jars, and a list of what is to be bought."""

    def __init__(self) -> None:
        self.jars: dict[str, int] = {}
        self.to_buy: list[str] = []

    def _load_scenario(self, scenario: dict[str, Any], long_context: bool = False) -> None:
        self.jars = dict(scenario.get("jars", {}))
        self.to_buy = list(scenario.get("to_buy", []))

    def count(self, what: str) -> dict[str, Any]:
        return {"what": what, "jars": self.jars.get(what, 0)}

    def take(self, what: str, jars: int = 1) -> dict[str, Any]:
        if self.jars.get(what, 0) < jars:
            return {"error": f"there are {self.jars.get(what, 0)} jars of {what}"}
        self.jars[what] -= jars
        return {"what": what, "left": self.jars[what]}

    def put_on_list(self, what: str) -> dict[str, Any]:
        if what in self.to_buy:
            raise ValueError(f"{what} is on the list")
        self.to_buy.append(what)
        return {"to_buy": list(self.to_buy)}


def _function(name: str, description: str, required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "dict", "properties": properties, "required": required}
    return {"name": name, "description": f"This tool belongs to the pantry. {description}", "parameters": parameters}


_WHAT = {"type": "string", "description": "What is in the jar, such as plums"}
FUNCTIONS = [
    _function("count", "Counts the jars of something.", ["what"], what=_WHAT),
    _function(
        "take", "Takes jars from the shelf.", ["what"], what=_WHAT,
        jars={"type": "integer", "description": "How many. Default is 1"},
    ),
    _function("put_on_list", "Puts something on the shopping list.", ["what"], what=_WHAT),
]  # fmt: skip


def _row(number: int, category: str, requests: list[str], answers: list[list[str]], **more: Any) -> dict[str, Any]:
    return {
        "id": f"{category}_{number}",
        "question": [[{"role": "user", "content": text}] if text else [] for text in requests],
        "initial_config": {"PantryAPI": {"jars": {"plums": 5, "beans": 2}, "to_buy": ["salt"]}},
        "involved_classes": ["PantryAPI"],
        "path": [],
        "ground_truth": answers,
        **more,
    }


OWN_MULTI_TURN: tuple[dict[str, Any], ...] = (
    _row(
        0,
        "multi_turn_base",
        [
            "Take three jars of plums for the cake.",
            "How many are left? And put plums on the list.",
        ],
        [["take(what='plums', jars=3)"], ["count('plums')", "put_on_list(what='plums')"]],
    ),
    _row(
        1,
        "multi_turn_base",
        ["Take both jars of beans.", "Then beans belong on the list."],
        [["take('beans', 2)"], ["put_on_list('beans')"]],
    ),
    _row(
        0,
        "multi_turn_miss_func",
        ["How many jars of plums are there?", "Put sugar on the list.", "", "Take one of the plums."],
        [["count('plums')"], [], ["put_on_list('sugar')"], ["take('plums')"]],
        missed_function={"2": ["put_on_list"]},
    ),
    _row(
        0,
        "multi_turn_miss_param",
        ["Take some jars from the shelf, please.", "Two jars of plums, I mean."],
        [[], ["take(what='plums', jars=2)"]],
    ),
)
