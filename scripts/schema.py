"""Writes docs/record.schema.json, the JSON Schema of one line of results.jsonl:  python scripts/schema.py"""

import json
from pathlib import Path

from verifiers.records import json_schema

TARGET = Path(__file__).parents[1] / "docs" / "record.schema.json"


def rendered() -> str:
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(rendered(), "utf-8")
    print(f"wrote {TARGET}")
