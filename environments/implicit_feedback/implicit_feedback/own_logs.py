"""Logs written by hand for this environment, each with a reason to be hard, in the form of a log file."""

from __future__ import annotations

from typing import Any


def _log(name: str, label: str, *texts: str, left: float | None = None, copied: int | None = None) -> dict[str, Any]:
    """`left` and `copied`: seconds after the last reply, and the number of the reply that was copied."""
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    replies = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    events = [{"kind": "copied", "after": copied, "seconds": 8.0}] if copied is not None else []
    if left is not None:
        events.append({"kind": "left", "after": replies[-1], "seconds": left})
    return {"id": f"own-{name}", "messages": messages, "events": events, "label": label}


GOOD, BAD = "satisfied", "dissatisfied"

OWN_LOGS: tuple[dict[str, Any], ...] = (
    _log("thanks", GOOD, "Convert 5 miles to km", "About 8.05 km.", "thanks"),
    _log(
        "error-gone",
        GOOD,
        "My printer shows error 0x61, what is it?",
        "A paper jam sensor. Open the rear tray and clean the sensor.",
        "No error any more, it prints. Great!",
    ),
    _log(
        "no-worries",
        GOOD,
        "Is it fine to repot a fern in May?",
        "Yes, May is a good month for ferns.",
        "No worries then, thanks!",
    ),
    _log(
        "silent-copy",
        GOOD,
        "Write a two-line birthday wish for a colleague who collects stamps",
        "May your year be well perforated and never short of postage,\nand every envelope bring you something rare.",
        left=30,
        copied=1,
    ),
    _log(
        "silent-reading",
        GOOD,
        "Explain what a reverse mortgage is",
        "With a reverse mortgage a bank pays you against your house, and is paid back when it is sold.",
        left=95,
    ),
    _log(
        "next-step",
        GOOD,
        "How do I open a terminal on a Mac?",
        "Press command and space, type Terminal, press return.",
        "How do I list hidden files in it?",
        "Type ls -a and press return.",
        left=40,
    ),
    _log(
        "after-trouble",
        GOOD,
        "Give me a synonym for 'happy'",
        "Happy is an adjective that has been in use since the 14th century.",
        "I asked for a synonym for happy",
        "Glad, cheerful, content.",
        "cheerful fits, thank you",
    ),
    _log(
        "shorter",
        GOOD,
        "Summarise the plot of Romeo and Juliet",
        "Two houses in Verona hate each other. Romeo of one and Juliet of the other fall in love at a feast, marry in "
        "secret, are torn apart by a duel and a banishment, and through a letter that never arrives both die; their "
        "parents make peace over the grave.",
        "Too long, say it in one sentence.",
        "Two lovers from feuding houses in Verona marry in secret and die by a message that comes too late, and Romeo "
        "and Juliet's parents make peace.",
        "That's the one.",
    ),
    _log(
        "json",
        GOOD,
        "List three rivers of France with their length",
        "The Loire has 1,006 km, the Seine 775 and the Rhone 813, of which 545 are in France.",
        "I need it as JSON for a script",
        '{"rivers of France": [{"name": "Loire", "length": 1006}, {"name": "Seine", "length": 775}, {"name": "Rhone", '
        '"length": 813}]}',
        "works",
    ),
    _log(
        "wrong-word-right-mood",
        GOOD,
        "What did I do wrong in: he go home",
        "It should be 'he goes home': the third person takes an s.",
        "Ah, so go was wrong and not home. Makes sense, thanks",
    ),
    _log(
        "never-easier",
        GOOD,
        "Knots for tying a boat to a ring?",
        "A round turn and two half hitches. It holds and comes off easily.",
        "Never had it so easy. Brilliant.",
    ),
    _log(
        "polite-go-on",
        GOOD,
        "Which museum in Ghent is good with children?",
        "The museum of industry: machines, a loom that runs, and a cinema.",
        "Is there a place for lunch in that one?",
        "Yes, a cafe with a view over the roofs.",
        left=60,
    ),
    _log(
        "same-again",
        BAD,
        "How do I turn off the autoplay of videos?",
        "Videos are shown in the feed. Many people like them.",
        "How can I switch autoplay of videos off?",
        "You can watch videos in full screen by tapping them.",
        left=4,
    ),
    _log(
        "asked-back",
        BAD,
        "Translate 'Bitte nicht stören' to English",
        "Sure! Could you tell me in which context you want to use the phrase?",
        left=3,
    ),
    _log(
        "cannot",
        BAD,
        "What time is it in Nairobi when it is noon in Berlin in summer?",
        "I'm sorry, I cannot access the current time.",
        left=6,
    ),
    _log(
        "thanks-but",
        BAD,
        "Recommend a book for someone who liked Dune",
        "Dune, by Frank Herbert, is a classic about a desert planet.",
        "Thanks but that is the one I named",
    ),
    _log(
        "still",
        BAD,
        "My app crashes at start",
        "Install it anew.",
        "did that, it still crashes",
        "Install it anew and restart the phone.",
        "still the same",
    ),
    _log(
        "rhetorical",
        BAD,
        "What is the capital of Australia?",
        "The capital of Australia is Sydney.",
        "Are you sure about that?",
    ),
    _log(
        "meant",
        BAD,
        "Tell me about Java",
        "Java is an island of Indonesia with 150 million people.",
        "I meant the language",
        "Javanese is spoken by 80 million people.",
        left=5,
    ),
    _log(
        "deflated",
        BAD,
        "Fix this line: prnt('hi')",
        "Your code looks fine to me.",
        "oh well",
    ),
    _log(
        "no-list",
        BAD,
        "Describe a walk through a market as prose",
        "* Stalls\n* Smells\n* People",
        "No bullet points, I said prose",
        "* Stalls with fruit\n* Smells of fish\n* People who shout",
        left=2,
    ),
    _log(
        "leaves-quickly",
        BAD,
        "Phone number of the nearest pharmacy please",
        "Pharmacies sell medicine and advise on its use.",
        left=2,
    ),
    _log(
        "shouting",
        BAD,
        "Cancel my order",
        "Orders can be seen in your account.",
        "CANCEL. MY. ORDER.",
    ),
    _log(
        "instead",
        BAD,
        "Write a limerick about a cat",
        "The cat sat quietly on the mat,\nand thought about this, and about that.",
        "That's two lines. A limerick has five",
        "A cat who sat on a mat\nwas thinking of this and of that.",
        "forget it",
    ),
)
