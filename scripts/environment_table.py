"""The table of this repository's environments in docs/environments.md, made from what their packages declare.

python scripts/environment_table.py          prints it
python scripts/environment_table.py --write  puts it into the page
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from verifiers.archives.environment import EnvironmentDeclaration, read_pyproject

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "environments.md"
HEADING = "## Packages in this repository\n"
INTRODUCTION = (
    "\nMade from the packages' own declarations by `python scripts/environment_table.py --write`. Each package's "
    "README has an example, the reward and the licence of its data; without a network each serves rows of its own. "
    "`vf-eval NAME -m reference` plays the right answers, `vf-eval configs/smoke.toml` two examples of each.\n\n"
)
HEAD = ("environment", "what it asks", "kind", "data", "evaluated by default", "keys")


def table() -> str:
    """Markdown, a row for each package, in the order of their names."""
    rows = [HEAD, ("---",) * len(HEAD)]
    rows += [_row(path) for path in sorted(ROOT.glob("environments/*/pyproject.toml"))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def _row(path: Path) -> tuple[str, ...]:
    raw = path.read_bytes()
    project = tomllib.loads(raw.decode())["project"]
    found = read_pyproject(raw).declaration
    name = f"[{project['name']}](../environments/{path.parent.name}/README.md)"
    keys = ", ".join(f"`{key}`" for key in found.required_keys)
    return name, project["description"], found.task_type or "", _data(found), _evaluated(found), keys


def _data(found: EnvironmentDeclaration) -> str:
    """Public data sets with what their licences are; what has none makes its rows itself."""
    named = dict.fromkeys(
        f"`{one.name}`" + (f" ({one.license})" if one.license else "") for one in found.datasets if one.name
    )
    return ", ".join(named) or "its own"


def _evaluated(found: EnvironmentDeclaration) -> str:
    examples, tries = found.eval.num_examples, found.eval.rollouts_per_example
    return f"{'all' if examples == -1 else examples} × {tries}"


def page() -> str:
    """docs/environments.md with the table as it is now; what follows the table's section stays."""
    before, heading, after = PAGE.read_text(encoding="utf-8").partition(HEADING)
    _, next_heading, rest = after.partition("\n## ")
    section = INTRODUCTION + table()
    if not heading:
        before += "\n"
    return before + HEADING + section + (next_heading + rest if next_heading else "")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(table(), end="")
