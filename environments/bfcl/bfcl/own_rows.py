"""Rows of exactly the leaderboard's schema, questions and answers joined, written for this project."""

from __future__ import annotations

from typing import Any


def _function(name: str, description: str, required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "dict", "properties": properties, "required": required}
    return {"name": name, "description": description, "parameters": parameters}


def _typed(kind: str, description: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "description": description, **more}


_FERRY = _function(
    "ferry.book",
    "Books places on a ferry.",
    ["route", "passengers"],
    route=_typed("string", "Harbours, as 'from-to'"),
    passengers=_typed("integer", "Number of people"),
    cabin=_typed("boolean", "Whether a cabin is wanted. Default is false"),
)
_TIDE = _function(
    "tide_height",
    "The height of the tide in metres.",
    ["harbour", "date"],
    harbour=_typed("string", "Name of the harbour"),
    date=_typed("string", "Day, as YYYY-MM-DD"),
    unit=_typed("string", "'m' or 'ft'. Default is 'm'", enum=["m", "ft"]),
)
_PAINT = _function(
    "paint.litres",
    "How much paint walls need.",
    ["walls"],
    walls=_typed("array", "Area of each wall in square metres", items={"type": "float"}),
    coats=_typed("integer", "Number of coats. Default is 1"),
    efficiency=_typed("float", "Square metres that a litre covers. Default is 10.0"),
)
_SEEDS = _function(
    "garden.order_seeds",
    "Orders seeds from the nursery.",
    ["items", "address"],
    items=_typed("array", "What is ordered", items={"type": "dict"}),
    address=_typed(
        "dict",
        "Where it goes",
        properties={"street": _typed("string", "Street and number"), "floor": _typed("integer", "Floor, if any")},
    ),
)
_ALARM = _function(
    "clock.set_alarm",
    "Sets an alarm.",
    ["time"],
    time=_typed("string", "As HH:MM"),
    days=_typed("array", "Days of the week. Default: once", items={"type": "string"}),
)


def _row(
    name: str, number: int, text: str, functions: list[dict[str, Any]], *answers: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": f"{name}_{number}",
        "question": [[{"role": "user", "content": text}]],
        "function": functions,
        "ground_truth": list(answers),
    }


OWN_ROWS: tuple[dict[str, Any], ...] = (
    _row(
        "simple",
        0,
        "Book the ferry from Oban to Craignure for five people, please, no cabin.",
        [_FERRY],
        {"ferry.book": {"route": ["Oban-Craignure", "Oban to Craignure"], "passengers": [5], "cabin": [False, ""]}},
    ),
    _row(
        "simple",
        1,
        "How high is the tide in Husum on 3 March 2031?",
        [_TIDE],
        {"tide_height": {"harbour": ["Husum"], "date": ["2031-03-03"], "unit": ["m", ""]}},
    ),
    _row(
        "simple",
        2,
        "My hall has two walls of 12.5 square metres and one of 8. How much paint do I need for two coats?",
        [_PAINT],
        {"paint.litres": {"walls": [[12.5, 12.5, 8], [12.5, 8, 12.5]], "coats": [2], "efficiency": [10.0, ""]}},
    ),
    _row(
        "simple",
        3,
        "Order 3 packets of leek seeds and 1 of dill to Mill Lane 7, please.",
        [_SEEDS],
        {
            "garden.order_seeds": {
                "items": [[{"name": ["leek"], "packets": [3]}, {"name": ["dill"], "packets": [1]}]],
                "address": [{"street": ["Mill Lane 7", "7 Mill Lane"], "floor": [""]}],
            }
        },
    ),
    _row(
        "multiple",
        0,
        "Wake me at half past six on Mondays and Fridays.",
        [_FERRY, _ALARM, _TIDE],
        {"clock.set_alarm": {"time": ["06:30", "6:30"], "days": [["Monday", "Friday"], ["Mondays", "Fridays"]]}},
    ),
    _row(
        "multiple",
        1,
        "I want a cabin on the boat from Kiel to Oslo, we are two.",
        [_ALARM, _FERRY, _PAINT],
        {"ferry.book": {"route": ["Kiel-Oslo", "Kiel to Oslo"], "passengers": [2], "cabin": [True]}},
    ),
    _row(
        "parallel",
        0,
        "What is the tide in Brest and in Saint-Malo on 2030-07-14, in feet?",
        [_TIDE],
        {"tide_height": {"harbour": ["Brest"], "date": ["2030-07-14"], "unit": ["ft"]}},
        {"tide_height": {"harbour": ["Saint-Malo", "St. Malo"], "date": ["2030-07-14"], "unit": ["ft"]}},
    ),
    _row(
        "parallel",
        1,
        "Set alarms for 07:00 and for 07:10.",
        [_ALARM],
        {"clock.set_alarm": {"time": ["07:00", "7:00"], "days": [""]}},
        {"clock.set_alarm": {"time": ["07:10", "7:10"], "days": [""]}},
    ),
    _row(
        "parallel_multiple",
        0,
        "Book the ferry Dover-Calais for one person without a cabin, and set an alarm for 04:45.",
        [_ALARM, _FERRY],
        {"ferry.book": {"route": ["Dover-Calais", "Dover to Calais"], "passengers": [1], "cabin": [False, ""]}},
        {"clock.set_alarm": {"time": ["04:45", "4:45"], "days": [""]}},
    ),
    _row(
        "live_simple",
        0,
        "paint pls, 1 wall 20 sqm, my paint covers 8 sqm per litre",
        [_PAINT],
        {"paint.litres": {"walls": [[20.0]], "coats": [1, ""], "efficiency": [8.0]}},
    ),
    _row("live_relevance", 0, "could u get me up early tmrw, like 5 am", [_ALARM, _TIDE]),
    _row("irrelevance", 0, "Which of Bach's fugues has the most voices?", [_FERRY, _PAINT]),
    _row("irrelevance", 1, "Translate 'good morning' into Danish.", [_TIDE]),
    _row("live_irrelevance", 0, "whats the weather in the alps rn", [_ALARM, _SEEDS]),
)
