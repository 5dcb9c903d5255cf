"""`SuffixDrafter`: guesses the next tokens of a rollout from earlier rollouts of its problem and from itself.

A reference, in plain Python and made to be read, for replays and tests; an engine brings its own. After suffix decoding
(arXiv 2411.04975) and its use per problem with a sliding window in DAS (arXiv 2511.13841).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class _Node:
    """The end of a run of tokens. What only one sequence goes on with is not spelt out: `rest` says where it stands."""

    __slots__ = ("children", "count", "rest")

    def __init__(self, count: int = 0, rest: tuple[Sequence[int], int, int] | None = None) -> None:
        self.count = count  # how often the run was seen
        self.children: dict[int, _Node] = {}
        self.rest = rest  # sequence, place of its next token, place where the run ends

    def spelt_out(self) -> dict[int, _Node]:
        """The children, the one that `rest` stands for too."""
        if self.rest is not None:
            sequence, place, end = self.rest
            if place < min(end, len(sequence)):  # else it has ended, or grows and has not come so far
                self.children[sequence[place]] = _Node(1, (sequence, place + 1, end))
                self.rest = None
        return self.children


class SuffixTree:
    """Counts of all runs of at most `depth` tokens in the sequences that were put in."""

    def __init__(self, depth: int = 24) -> None:
        if depth < 2:
            raise ValueError(f"a tree of depth {depth}; drafting needs a token to match and one to follow")
        self.depth = depth
        self.root = _Node()
        self.changes = 0  # grows with each sequence that is put in or taken out

    def insert(self, tokens: Sequence[int]) -> None:
        self.changes += 1
        for start in range(len(tokens)):
            node: _Node | None = self.root
            end = min(start + self.depth, len(tokens))
            for place in range(start, end):
                node = self._pass(node, tokens, place, end)
                if node is None:
                    break

    def remove(self, tokens: Sequence[int]) -> None:
        """Takes out a sequence that was put in before."""
        self.changes += 1
        for start in range(len(tokens)):
            node = self.root
            for token in tokens[start : start + self.depth]:
                children = node.spelt_out()
                child = children[token]
                child.count -= 1
                if child.count == 0:  # so are all below it
                    del children[token]
                    break
                node = child

    def grow(self, sequence: Sequence[int], ends: list[_Node]) -> list[_Node]:
        """Puts in the last token of a sequence that grows; `ends` is what the last call gave, at first nothing.

        Gives the ends of the sequence that were in the tree before, the longest first, each one token shorter.
        """
        place = len(sequence) - 1
        starts = [*ends, self.root][-self.depth :]
        passed = [
            self._pass(node, sequence, place, place - length + self.depth)
            for length, node in zip(range(len(starts) - 1, -1, -1), starts)
        ]
        return [node for node in passed if node is not None]

    def follow(self, token: int, ends: list[_Node]) -> list[_Node]:
        """The same for a sequence that is not put in: its ends that are in the tree, with one more token."""
        starts = [*ends, self.root][-self.depth :]
        return [child for node in starts if (child := node.spelt_out().get(token)) is not None]

    def _pass(self, node: _Node, sequence: Sequence[int], place: int, end: int) -> _Node | None:
        """One more run goes on from `node` with the token at `place`. `None`: it is the first to do so."""
        children = node.spelt_out()
        child = children.get(sequence[place])
        if child is None:
            children[sequence[place]] = _Node(1, (sequence, place + 1, end))
            return None
        child.count += 1
        return child


def _likeliest(node: _Node, limit: int, min_probability: float) -> list[int]:
    """What most often follows, while all of it together is likely enough."""
    tokens: list[int] = []
    probability = 1.0
    while len(tokens) < limit and (children := node.spelt_out()):
        token, child = max(children.items(), key=lambda item: item[1].count)
        probability *= child.count / sum(other.count for other in children.values())
        if probability < min_probability:
            break
        tokens.append(token)
        node = child
    return tokens


class SuffixDrafter:
    """A tree for each problem, over its last `window` rollouts so that it follows the policy, and one for each rollout.

    A draft has at most `factor` tokens for each token of the rollout's end that was found, and stops before what has
    less than `min_probability`.
    """

    def __init__(self, window: int = 16, depth: int = 24, min_probability: float = 0.1, factor: float = 1.0) -> None:
        self.window, self.depth = window, depth
        self.min_probability, self.factor = min_probability, factor
        self._trees: dict[str, SuffixTree] = {}
        self._kept: dict[str, deque[Sequence[int]]] = {}

    def observe(self, problem: str, tokens: Sequence[int]) -> None:
        """A rollout of the problem has ended with these completion tokens."""
        tree = self.tree(problem)
        kept = self._kept.setdefault(problem, deque())
        kept.append(tokens)
        tree.insert(tokens)
        if len(kept) > self.window:
            tree.remove(kept.popleft())

    def begin(self, problem: str, prompt: Sequence[int] = ()) -> Drafting:
        """Drafting for one rollout of the problem, whose prompt may be repeated too."""
        drafting = Drafting(self, self.tree(problem))
        drafting.extend(prompt)
        return drafting

    def tree(self, problem: str) -> SuffixTree:
        return self._trees.setdefault(problem, SuffixTree(self.depth))


class Drafting:
    """One rollout in progress."""

    def __init__(self, drafter: SuffixDrafter, others: SuffixTree) -> None:
        self.drafter = drafter
        self._sequence: list[int] = []
        self._own, self._own_ends = SuffixTree(drafter.depth), list[_Node]()
        self._others, self._others_ends = others, list[_Node]()
        self._changes = others.changes

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens were generated."""
        for token in tokens:
            self._sequence.append(token)
            self._own_ends = self._own.grow(self._sequence, self._own_ends)
            self._others_ends = self._others.follow(token, self._others_ends)

    def draft(self, limit: int) -> list[int]:
        """At most `limit` tokens to try: what followed the longest end of the rollout that was seen before."""
        if limit < 1:
            return []
        if self._changes != self._others.changes:
            self._find_again()
        drafter = self.drafter
        drafts: list[tuple[int, list[int]]] = []
        for ends in (self._own_ends, self._others_ends):
            matched, node = next(((len(ends) - i, n) for i, n in enumerate(ends) if n.spelt_out()), (0, None))
            if node is not None:
                most = min(limit, max(1, int(drafter.factor * matched)))
                drafts.append((matched, _likeliest(node, most, drafter.min_probability)))
        return max(drafts, key=lambda draft: (draft[0], len(draft[1])), default=(0, []))[1]

    def _find_again(self) -> None:
        """Another rollout of the problem has ended meanwhile."""
        self._changes, self._others_ends = self._others.changes, []
        for token in self._sequence[-self.drafter.depth :]:
            self._others_ends = self._others.follow(token, self._others_ends)
