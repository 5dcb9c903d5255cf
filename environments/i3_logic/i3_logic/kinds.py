"""`KINDS`: every kind of puzzle by its name, those of the library and those of this package, each with an example."""

from __future__ import annotations

from dataclasses import dataclass

import verifiers as vf
from i3_logic.brackets import DyckErrors, DyckLanguage
from i3_logic.cipher import Cipher
from i3_logic.expressions import BooleanExpressions, Operation
from i3_logic.fill import Binario, Kakuro, Survo
from i3_logic.kind import LogicKind
from i3_logic.latin import Calcudoku, Skyscrapers
from i3_logic.office import BuggyTables, TimeSequence
from i3_logic.people import GoodsExchange, WebOfLies
from i3_logic.place import Campsite, StarPlacement
from i3_logic.regions import Norinori, NumberWall
from i3_logic.shade import Hitori, Kukurasu, Thermometers
from i3_logic.stories import ObjectProperties, SpaceReasoning
from i3_logic.sums import Cryptarithm, MathPath
from i3_logic.ways import ArrowMaze, Numbrix
from i3_logic.words import WordSearch, WordSorting
from verifiers.rubrics.logic_task import Puzzle

OWN: tuple[LogicKind, ...] = (
    ArrowMaze(), Binario(), BooleanExpressions(), BuggyTables(), Calcudoku(), Campsite(), Cipher(), Cryptarithm(),
    DyckLanguage(), DyckErrors(), GoodsExchange(), Hitori(), Kakuro(), Kukurasu(), MathPath(), Norinori(), NumberWall(),
    Numbrix(), ObjectProperties(), Operation(), Skyscrapers(), SpaceReasoning(), StarPlacement(), Survo(),
    Thermometers(), TimeSequence(), WebOfLies(), WordSearch(), WordSorting(),
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    task: vf.LogicTask
    grows: str  # what becomes more from difficulty 1 to 5
    example: Puzzle
    example_answer: str
    is_unique: bool  # whether every puzzle is made so that it has one solution only

    @property
    def worked(self) -> str:
        """The example as a prompt shows it."""
        return f"{self.task.describe(self.example)}\n\n<answer>\n{self.example_answer}\n</answer>"


def _of_library(name: str, grows: str, example: Puzzle, answer: str, is_unique: bool = False) -> Kind:
    return Kind(vf.LOGIC_TASKS[name], grows, example, answer, is_unique)


_LIBRARY = (
    _of_library("countdown", "numbers: 3, 4, 5, 6, 7", {"numbers": [2, 5], "target": 10, "use_all": False}, "2 * 5"),
    _of_library(
        "futoshiki", "side of the grid: 4, 5, 6, 7, 8", {"grid": [[0, 0], [0, 0]], "less": [[0, 0, 0, 1]]}, "1 2\n2 1"
    ),
    _of_library(
        "game_of_24",
        "largest number: 7, 9, 11, 13, 15",
        {"numbers": [4, 6], "target": 24, "use_all": True},
        "4 * 6",
    ),
    _of_library(
        "graph_colouring",
        "nodes: 5, 7, 9, 11, 13",
        {"nodes": 3, "colours": 3, "edges": [[1, 2], [2, 3]]},
        "1: 1, 2: 2, 3: 1",
    ),
    _of_library("hamiltonian_path", "nodes: 6, 8, 10, 12, 14", {"nodes": 3, "edges": [[1, 3], [2, 3]]}, "1 3 2"),
    _of_library(
        "knights_and_knaves",
        "people: 3, 4, 5, 6, 7",
        {"said": {"Ada": ["knight", "Ada"], "Ben": ["not", ["knight", "Ada"]]}},
        "Ada: knight, Ben: knave",
        is_unique=True,
    ),
    _of_library("latin_square", "side of the grid: 4, 5, 6, 7, 8", {"grid": [[1, 0], [0, 0]]}, "1 2\n2 1"),
    _of_library("minesweeper", "side of the field: 4, 5, 6, 7, 8", {"rows": ["#1", "11"], "mines": 1}, "(1, 1)"),
    _of_library("n_queens", "side of the board: 6, 8, 10, 12, 14", {"size": 4, "given": [[0, 1]]}, "2 4 1 3"),
    _of_library(
        "ordering",
        "people: 4, 5, 6, 7, 8",
        {"names": ["Ada", "Ben"], "rules": [["before", "Ben", "Ada"]]},
        "Ben, Ada",
    ),
    _of_library(
        "satisfiability",
        "variables: 4, 5, 6, 7, 8",
        {"variables": 2, "clauses": [[1, 2], [-1, -2]]},
        "x1 = true, x2 = false",
    ),
    _of_library("subset_sum", "numbers: 6, 8, 10, 12, 14", {"numbers": [1, 3, 6], "target": 7}, "1 6"),
    _of_library(
        "sudoku",
        "side of the grid: 4, 6, 8, 9, 9; more empty cells from 4 to 5",
        {"grid": [[1, 0], [0, 0]], "box_rows": 1, "box_columns": 2},
        "1 2\n2 1",
    ),
    _of_library(
        "zebra",
        "houses: 3, 3, 4, 4, 5; categories: 2, 3, 3, 4, 4",
        {"houses": 2, "categories": {"pet": ["cat", "dog"]}, "rules": [["left", "dog", "cat"]]},
        "1: dog\n2: cat",
    ),
)
_OWN = [Kind(own, own.grows, own.example, own.example_answer, own.is_unique) for own in OWN]
KINDS: dict[str, Kind] = {kind.task.name: kind for kind in sorted((*_LIBRARY, *_OWN), key=lambda one: one.task.name)}
