"""What made conversations are about. Written for this environment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    request: str
    again: str  # the same in other words
    further: str  # a question that builds on an answer
    facts: tuple[str, ...]  # an answer, a sentence each
    off: str  # an answer that misses the point
    term: str  # a word that a better answer mentions


TOPICS = (
    Topic(
        "How do I get red wine out of a cotton tablecloth?",
        "I have a red wine stain on cotton, how can it be removed?",
        "And what if the stain has already dried?",
        (
            "Blot the wine with a cloth and do not rub.",
            "Cover the stain on the cotton with salt for ten minutes.",
            "Rinse the tablecloth with cold water from behind.",
            "Then wash it with an oxygen bleach at forty degrees.",
        ),
        "Tablecloths come in cotton, linen and polyester. Cotton is the most common of them.",
        "vinegar",
    ),
    Topic(
        "Why does my sourdough bread stay flat?",
        "My sourdough loaf never rises, what is the cause?",
        "How long should it rest in the fridge?",
        (
            "Most often the starter of a sourdough is too weak.",
            "Feed it twice a day until it doubles within five hours.",
            "A bread that stays flat may also have rested too long.",
            "Bake it when a finger leaves a dent that fills slowly.",
        ),
        "Sourdough is a kind of bread with a long history. It was baked in Egypt.",
        "temperature",
    ),
    Topic(
        "Which sort of tree fits a small north-facing garden?",
        "I look for a tree for a little garden that faces north.",
        "How much water does it need in its first year?",
        (
            "A Japanese maple is a good tree for a small garden.",
            "It likes shade and stays below four metres.",
            "A serviceberry bears flowers and fruit in a north-facing place.",
            "Both want soil that does not dry out.",
        ),
        "Trees improve the air of towns. Many towns have planted more of them.",
        "hazel",
    ),
    Topic(
        "How do I sort a list of dictionaries by a key in Python?",
        "What sorts Python dictionaries in a list by one of their keys?",
        "Can I sort by two keys at once?",
        (
            "Call sorted with a key function on the list.",
            "The function takes one of the dictionaries and returns its value.",
            "With reverse set to true the order of the sort is turned.",
            "Python keeps the order of equal items.",
        ),
        "A dictionary maps keys to values. Since 3.7 they keep their order.",
        "itemgetter",
    ),
    Topic(
        "What should I see in Porto on a rainy day?",
        "It rains in Porto today, what is worth a visit?",
        "Which of these is closest to the station?",
        (
            "The station of Porto has halls with painted tiles.",
            "The port wine cellars across the river are dry on a rainy day.",
            "The bookshop Lello opens at half past nine.",
            "The museum of Serralves takes an afternoon.",
        ),
        "Porto has mild winters. Most rain falls in December.",
        "cathedral",
    ),
    Topic(
        "How can I sleep better on night trains?",
        "I never get sleep on a night train, what helps?",
        "Is the upper berth quieter?",
        (
            "Take a berth in the middle of the carriage of the train.",
            "Earplugs help more than music against the noise of the night.",
            "Eat early and drink little before you sleep.",
            "A scarf over the eyes replaces a curtain.",
        ),
        "Night trains are coming back in Europe. New lines open every year.",
        "blanket",
    ),
    Topic(
        "What does a good cover letter for a librarian contain?",
        "I apply as a librarian, what belongs into the cover letter?",
        "Should I mention my gap year?",
        (
            "Begin the letter with why this library and not another one.",
            "Name one project that a librarian would remember.",
            "Show that you like people as well as books.",
            "End the cover letter with a date on which you are free.",
        ),
        "Librarians work in schools, towns and firms. Their number has been stable.",
        "catalogue",
    ),
    Topic(
        "How do I keep deer away from my roses?",
        "Deer eat my roses, what keeps them off?",
        "Does that harm the bees?",
        (
            "A fence of two metres keeps deer out for good.",
            "Where a fence is too much, hang soap between the roses.",
            "Deer dislike lavender and sage at the edge of a bed.",
            "Change the smell every few weeks.",
        ),
        "Deer live at the edge of woods. They are most active at dawn.",
        "netting",
    ),
    Topic(
        "Why is my bicycle chain slipping under load?",
        "The chain of my bicycle jumps when I push hard, why?",
        "Can I change the cassette myself?",
        (
            "A chain that slips under load is mostly worn.",
            "Measure it: at one per cent of stretch it has to go.",
            "A new chain on old sprockets of a bicycle slips as well.",
            "Then check the cable of the derailleur.",
        ),
        "Bicycle chains have about 110 links. The first ones were made in 1880.",
        "cassette",
    ),
    Topic(
        "How much paint do I need for a hall of 40 square metres?",
        "What amount of paint does a hall with 40 square metres take?",
        "Does the ceiling need another kind?",
        (
            "One litre of paint covers about eight square metres.",
            "For a hall of 40 that makes five litres for one coat.",
            "Two coats are the rule on white walls.",
            "Buy a tenth more than you need.",
        ),
        "Paint is sold in white and in colours. Colours can be mixed.",
        "primer",
    ),
    Topic(
        "What is a fair way to split rent with rooms of different size?",
        "Our rooms differ in size, how do we split the rent fairly?",
        "What about the one with the balcony?",
        (
            "Split half of the rent equally and half by the size of rooms.",
            "Count shared space for everyone the same.",
            "Or let each write down what a room is worth to them.",
            "Give each room to the highest bid, and scale the bids to the rent.",
        ),
        "Rents have risen in most towns. Shared flats are common among students.",
        "auction",
    ),
    Topic(
        "How do I explain gravity to a child of six?",
        "My child is six, how can I make gravity clear?",
        "What experiment could we do at home?",
        (
            "Say that the earth pulls at everything, like a gentle hand.",
            "Let the child drop a spoon and a feather.",
            "Gravity is why we come back down when we jump.",
            "On the moon the pull is weaker, so one jumps higher.",
        ),
        "Gravity was described by Newton. His book is from 1687.",
        "magnet",
    ),
)
