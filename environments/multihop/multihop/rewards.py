"""What a rollout is worth: the last answer above all; the triplets a little, as far as they are those needed."""

from __future__ import annotations

from collections import Counter

import verifiers as vf
from multihop.dialogue import PARSER, Dialogue, dialogue_of
from multihop.graph import folded

TRIPLET_WEIGHT = 0.2


def rubric(graph: bool) -> vf.Rubric:
    found = vf.Rubric(funcs=[correct_answer], weights=[1.0], parser=PARSER)
    if graph:
        found.add_reward_func(triplet_score, TRIPLET_WEIGHT)
    found.add_metric(questions_right)
    for metric in (triplet_precision, triplet_recall, triplets_contradicted, triplets_not_stated) if graph else ():
        found.add_metric(metric)
    return found


def correct_answer(state: vf.State) -> float:
    """1 when the last question was answered rightly."""
    dialogue = dialogue_of(state)
    return vf.Graded(0.0, "not every question was answered") if not dialogue.is_over else float(_rights(dialogue)[-1])


def questions_right(state: vf.State) -> float:
    """The share of all questions that were answered rightly."""
    dialogue = dialogue_of(state)
    return sum(_rights(dialogue)) / len(dialogue.questions)


def triplet_score(state: vf.State) -> float:
    """F-measure of the triplets in which precision counts most (F0.5): a reply of everything there is earns little."""
    precision, recall = triplet_precision(state), triplet_recall(state)
    return 1.25 * precision * recall / (0.25 * precision + recall) if precision and recall else 0.0


def triplet_precision(state: vf.State) -> float:
    """The share of what was given that the questions need: true triplets that nobody asked for count as wrong."""
    dialogue = dialogue_of(state)
    count = len(dialogue.given) + dialogue.spoiled
    return len(dialogue.given & dialogue.needed) / count if count else 0.0


def triplet_recall(state: vf.State) -> float:
    dialogue = dialogue_of(state)
    return len(dialogue.given & dialogue.needed) / len(dialogue.needed)


def triplets_contradicted(state: vf.State) -> float:
    return float(_verdicts(dialogue_of(state))["contradicted"])


def triplets_not_stated(state: vf.State) -> float:
    return float(_verdicts(dialogue_of(state))["not stated"])


def _rights(dialogue: Dialogue) -> list[bool]:
    asked = zip(dialogue.questions, dialogue.answers, strict=False)
    return [folded(answer) in {folded(right) for right in question["answers"]} for question, answer in asked]


def _verdicts(dialogue: Dialogue) -> Counter[str]:
    return Counter(one.verdict for reply in dialogue.replies for one in reply.checked)
