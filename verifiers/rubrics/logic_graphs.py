"""Puzzles on a graph, whose nodes are numbered from 1: colours, and a way through all nodes."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

from verifiers.rubrics.logic_task import LogicTask, Puzzle, WrongAnswer, read_number, read_numbers, read_values


class GraphColouring(LogicTask):
    """A colour for every node, none the same at both ends of an edge."""

    name = "graph_colouring"
    parts = ("nodes", "colours", "edges")
    answer_form = "Write the colour's number for every node, like: 1: 2, 2: 1, 3: 3."

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        nodes, colours = 3 + 2 * difficulty, 3
        colour = {node: rng.randint(1, colours) for node in range(1, nodes + 1)}
        possible = [list(pair) for pair in combinations(colour, 2) if colour[pair[0]] != colour[pair[1]]]
        edges = sorted(rng.sample(possible, min(len(possible), 2 * nodes)))
        answer = ", ".join(f"{node}: {number}" for node, number in colour.items())
        return {"nodes": nodes, "colours": colours, "edges": edges}, answer

    def describe(self, puzzle: Puzzle) -> str:
        return (
            f"Give each of the nodes 1 to {puzzle['nodes']} one of the colours 1 to {puzzle['colours']} so that no "
            f"edge joins two nodes of the same colour. The edges are {in_words(puzzle)}."
        )

    def check(self, puzzle: Puzzle, answer: str) -> None:
        read = read_values(answer, [str(node) for node in range(1, puzzle["nodes"] + 1)])
        colour = {int(node): read_number(value) for node, value in read.items()}
        for node, number in colour.items():
            if not 1 <= number <= puzzle["colours"]:
                raise WrongAnswer(f"node {node} has the colour {number}, which is not one of {puzzle['colours']}")
        for one, other in puzzle["edges"]:
            if colour[one] == colour[other]:
                raise WrongAnswer(f"the nodes {one} and {other} have the same colour")


class HamiltonianPath(LogicTask):
    """A way along edges that comes to every node once."""

    name = "hamiltonian_path"
    parts = ("nodes", "edges")
    answer_form = "Write the nodes in the order of the way, separated by spaces."

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        nodes = 4 + 2 * difficulty
        way = rng.sample(range(1, nodes + 1), nodes)
        edges = {tuple(sorted(pair)) for pair in pairwise(way)}
        others = [pair for pair in combinations(range(1, nodes + 1), 2) if pair not in edges]
        edges |= set(rng.sample(others, nodes // 2))
        return {"nodes": nodes, "edges": sorted(map(list, edges))}, " ".join(map(str, way))

    def describe(self, puzzle: Puzzle) -> str:
        return (
            f"Find a way along edges that comes to each of the nodes 1 to {puzzle['nodes']} exactly once. "
            f"The edges, which can be taken in both directions, are {in_words(puzzle)}."
        )

    def check(self, puzzle: Puzzle, answer: str) -> None:
        way = read_numbers(answer)
        if sorted(way) != list(range(1, puzzle["nodes"] + 1)):
            raise WrongAnswer(f"the way does not come to each of the {puzzle['nodes']} nodes once")
        edges = {frozenset(edge) for edge in puzzle["edges"]}
        for one, other in pairwise(way):
            if frozenset((one, other)) not in edges:
                raise WrongAnswer(f"there is no edge between {one} and {other}")


def in_words(puzzle: Puzzle) -> str:
    return ", ".join(f"{one}-{other}" for one, other in puzzle["edges"])
