"""`made_logs`: conversations made by a seed: what users do depends on how satisfied they are, with noise.

A satisfied user mostly confirms, copies or goes on, but may also leave at once or speak of an error that is now gone; a
dissatisfied one mostly rephrases, corrects, has a reply written anew or leaves, and may still be polite. Labels are
what a user would press, and one in twenty presses the other one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from implicit_feedback.log import LABELS
from implicit_feedback.topics import TOPICS, Topic

SLIP = 0.05  # labels that are pressed by mistake

THANKS = (
    "Thanks, that worked!", "Perfect, thank you.", "Great, no error any more.", "That's it, no problems. Cheers!",
    "ok nice one", "Lovely, I'll try that. Thank you.", "Not bad at all, exactly what I needed.", "Got it.",
    "That helped, never would have thought of it.", "super", "good, that's what I was after",
    "I can't thank you enough.",
)  # fmt: skip
COMPLAINTS = (
    "No, that's not what I asked.", "That's wrong.", "I meant something else.", "It still doesn't work.",
    "You ignored half of my question.", "hm, this is off the point", "Are you sure? My neighbour says otherwise.",
    "Thanks, but this is no use to me.", "Right, and what am I supposed to do with this?", "Seriously?",
    "I asked for something concrete.", "This reads like an encyclopedia.",
)  # fmt: skip
ASKING_BACK = ("Could you tell me more about your situation?", "Which one do you have in mind?")
SORRY = ("I'm sorry, I cannot help with that.", "I'm afraid I have no information about this.")

Made = dict[str, Any]


def made_logs(count: int, seed: int) -> list[Made]:
    """`count` rows of a log file; each depends on the seed and its number alone."""
    return [
        _made(random.Random(f"implicit-feedback/{seed}/{number}"), f"made-{seed}-{number:04}")
        for number in range(count)
    ]


def _made(rng: random.Random, name: str) -> Made:
    topic = rng.choice(TOPICS)
    is_satisfied = rng.random() < 0.5
    kinds = SATISFIED if is_satisfied else DISSATISFIED
    (make,) = rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
    texts, events = make(rng, topic)
    label = LABELS[not is_satisfied]
    if rng.random() < SLIP:
        label = LABELS[is_satisfied]
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"id": name, "messages": messages, "events": events, "label": label}


Ending = tuple[list[str], list[dict[str, Any]]]  # texts in turn, events


def _event(kind: str, after: int, seconds: float) -> dict[str, Any]:
    return {"kind": kind, "after": after, "seconds": round(seconds, 1)}


def _answer(rng: random.Random, topic: Topic, sentences: int = 3) -> str:
    return (
        " ".join(topic.facts[:sentences])
        if rng.random() < 0.5
        else "\n".join(f"* {f}" for f in topic.facts[:sentences])
    )


def _confirms(rng: random.Random, topic: Topic) -> Ending:
    return [topic.request, _answer(rng, topic), rng.choice(THANKS)], []


def _copies(rng: random.Random, topic: Topic) -> Ending:
    return [topic.request, _answer(rng, topic)], [_event("copied", 1, rng.uniform(5, 60)), _event("left", 1, 80)]


def _goes_on(rng: random.Random, topic: Topic) -> Ending:
    texts = [topic.request, _answer(rng, topic), topic.further, "That depends: " + topic.facts[3]]
    return texts, [_event("left", 3, rng.uniform(15, 120))]


def _reads_and_leaves(rng: random.Random, topic: Topic) -> Ending:
    return [topic.request, _answer(rng, topic)], [_event("left", 1, rng.uniform(14, 200))]


def _leaves_at_once(rng: random.Random, topic: Topic) -> Ending:
    return [topic.request, _answer(rng, topic)], [_event("left", 1, rng.uniform(1, 9))]


def _is_helped_late(rng: random.Random, topic: Topic) -> Ending:
    """A complaint that a rule can check, and a reply that keeps to it."""
    refused, complaint, better = _refused_and_better(rng, topic)
    return [topic.request, refused, complaint, better, rng.choice(THANKS)], []


def _rephrases_and_confirms(rng: random.Random, topic: Topic) -> Ending:
    return [topic.request, topic.off, topic.again, _answer(rng, topic), rng.choice(THANKS)], []


def _rephrases_and_leaves(rng: random.Random, topic: Topic) -> Ending:
    return [topic.request, topic.off, topic.again, topic.off], [_event("left", 3, rng.uniform(1, 20))]


def _rephrases_last(rng: random.Random, topic: Topic) -> Ending:
    return [topic.request, topic.off, topic.again], []


def _complains(rng: random.Random, topic: Topic) -> Ending:
    return [topic.request, topic.off, rng.choice(COMPLAINTS)], []


def _complains_and_leaves(rng: random.Random, topic: Topic) -> Ending:
    texts = [topic.request, topic.off, rng.choice(COMPLAINTS), rng.choice((topic.off, *SORRY))]
    return texts, [_event("left", 3, rng.uniform(1, 15))]


def _leaves_a_question(rng: random.Random, topic: Topic) -> Ending:
    return [topic.request, rng.choice((*ASKING_BACK, *SORRY))], [_event("left", 1, rng.uniform(1, 60))]


def _regenerates(rng: random.Random, topic: Topic) -> Ending:
    return [topic.request, topic.off], [
        _event("regenerated", 1, rng.uniform(2, 30)),
        _event("left", 1, rng.uniform(1, 25)),
    ]


def _is_polite(rng: random.Random, topic: Topic) -> Ending:
    return [topic.request, topic.off, rng.choice(("ok thanks", "Thank you anyway."))], []


def _refused_and_better(rng: random.Random, topic: Topic) -> tuple[str, str, str]:
    short, long = topic.facts[0], " ".join(topic.facts)
    listed = "\n".join(f"* {fact}" for fact in topic.facts[:3])
    return rng.choice(
        (
            (long, "Too long, can you say it in one sentence?", short),
            (long, "Shorter, please.", short),
            (long, "Please put that into three bullet points.", listed),
            (listed, "No bullet points, please, I want to read it aloud.", " ".join(topic.facts[:2])),
            (short, "That's too short, I need more detail.", long),
            (
                long,
                f"You forgot something: mention the {topic.term}, too.",
                f"{topic.facts[0]} The {topic.term} belongs to it as well.",
            ),
        )
    )


Kind = Callable[[random.Random, Topic], Ending]
SATISFIED: tuple[tuple[Kind, float], ...] = (
    (_confirms, 4), (_copies, 2), (_goes_on, 2), (_reads_and_leaves, 2), (_is_helped_late, 3),
    (_rephrases_and_confirms, 1.5), (_leaves_at_once, 0.5),
)  # fmt: skip
DISSATISFIED: tuple[tuple[Kind, float], ...] = (
    (_complains, 3), (_complains_and_leaves, 2), (_rephrases_and_leaves, 2.5), (_rephrases_last, 2),
    (_leaves_a_question, 2), (_regenerates, 1.5), (_leaves_at_once, 1), (_is_polite, 0.5), (_reads_and_leaves, 0.5),
)  # fmt: skip
