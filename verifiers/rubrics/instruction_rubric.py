"""`InstructionRubric`: whether a reply follows instructions that can be checked by rule, as those of IFEval."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.calls import parameters_of
from verifiers.errors import RewardFault
from verifiers.parsers import MaybeThinkParser, Parser, is_reasoning_unfinished
from verifiers.rubrics.graded import Graded
from verifiers.rubrics.instruction_checks import INSTRUCTIONS, Instruction, as_is
from verifiers.rubrics.rubric import Rubric

MAX_CHARS = 200_000


class InstructionRubric(Rubric):
    """Rewards a reply that follows all instructions of its row to the letter: 1.0 or 0.0, as `follows_all`.

    The row has, in `info` or as columns, `instruction_id_list` (ids of IFEval, or added ones) and `kwargs` (a dict of
    arguments for each, where `None` means absent). The share that was followed is the metric `share_followed`.
    Reasoning is no part of the reply. An unknown id or a missing argument is a fault that names it.

    >>> rubric = InstructionRubric()
    >>> info = {"instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{}, {}]}
    >>> rubric.share_followed(rubric.parser, "No comma here.", {}, info)
    0.5
    """

    def __init__(
        self,
        funcs: Sequence[Callable[..., Any]] | None = None,
        weights: Sequence[float] | None = None,
        parser: Parser | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(funcs=funcs, weights=weights, parser=parser or MaybeThinkParser(), **attributes)
        self.instructions: dict[str, Instruction] = dict(INSTRUCTIONS)
        self.add_reward_func(self.follows_all)
        self.add_metric(self.share_followed)

    def add_instruction(self, name: str, check: Callable[..., bool]) -> None:
        """`check(reply, **arguments)` for rows that name it; parameters without a default must be in `kwargs`."""
        if name in self.instructions:
            raise ValueError(f"there is an instruction '{name}' already; choose another name")
        named = [p for p in parameters_of(check) if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)][1:]
        needed = {p.name: as_is for p in named if p.default is p.empty}
        self.instructions[name] = Instruction(check, needed, tuple(p.name for p in named if p.name not in needed))

    def follows_all(self, parser: Parser, completion: Any, state: Any, info: Any) -> float:
        """Raises RewardFault for a row without instructions, with an unknown one, or that lacks an argument."""
        broken = self._broken(parser, completion, state, info)
        return Graded(0.0, f"not followed: {', '.join(broken)}") if broken else 1.0

    def share_followed(self, parser: Parser, completion: Any, state: Any, info: Any) -> float:
        broken = self._broken(parser, completion, state, info)
        return 1.0 - len(broken) / len(_asked(state, info)[0])

    def _broken(self, parser: Parser, completion: Any, state: Any, info: Any) -> list[str]:
        """The names of the instructions that the reply does not follow, in their order."""
        names, arguments = _asked(state, info)
        checks = [(name, *self._read(name, given)) for name, given in zip(names, arguments, strict=True)]
        texts = parser.assistant_texts(completion)
        if not texts or is_reasoning_unfinished(texts[-1]):
            return names
        reply = parser.parse_answer(completion)
        reply = "" if reply is None else str(reply).strip()
        if not reply or len(reply) > MAX_CHARS:
            return names
        return [name for name, check, given in checks if not _is_followed(name, check, reply, given)]

    def _read(self, name: str, given: Any) -> tuple[Callable[..., bool], dict[str, Any]]:
        instruction = self.instructions.get(name)
        if instruction is None:
            raise RewardFault(f"there is no instruction '{name}'. Try: rubric.add_instruction({name!r}, check)")
        if given is not None and not isinstance(given, Mapping):
            raise RewardFault(f"the arguments of instruction '{name}' are {given!r:.60}, not a dict")
        return instruction.check, instruction.read(name, given)


def _asked(state: Any, info: Any) -> tuple[list[str], list[Any]]:
    """The ids and the arguments of each, from `info`, else from columns of the row."""
    row = info if isinstance(info, Mapping) and "instruction_id_list" in info else state.get("input") or {}
    names, arguments = _decoded(row.get("instruction_id_list")), _decoded(row.get("kwargs"))
    if not isinstance(names, Sequence) or isinstance(names, str) or not names:
        raise RewardFault(f"'instruction_id_list' is {names!r:.60}, not a list of ids, in 'info' or as a column")
    if not isinstance(arguments, Sequence) or len(arguments) != len(names):
        raise RewardFault(f"'kwargs' is {arguments!r:.60}, not a list of {len(names)} dicts, one for each instruction")
    return list(names), list(arguments)


def _decoded(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _is_followed(name: str, check: Callable[..., bool], reply: str, given: dict[str, Any]) -> bool:
    found = check(reply, **given)
    if not isinstance(found, bool):
        raise RewardFault(f"the check of instruction '{name}' returned {found!r:.60}, not True or False")
    return found
