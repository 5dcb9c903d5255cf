"""Questions about the real world in the form of the public rows, written for this project, for places without it."""

from __future__ import annotations

from typing import Any

_QUESTIONS = (
    ("Which river runs through the city in which the physicist was born whose name is the unit of electrical "
     "resistance?", "Regnitz"),
    ("In which country was the scientist born who gave her name, together with her husband, to the element with 96 "
     "protons?", "Poland"),
    ("What is the highest mountain of the island whose largest city is the capital of the country that has the kiwi as "
     "its national bird?", "Mount Ruapehu"),
    ("Which sea lies at the mouth of the longest river of Europe?", "Caspian Sea"),
    ("On which island did the general die who lost the battle fought on 18 June 1815?", "Saint Helena"),
    ("What is the name of the strait between the two islands of the country whose capital is Wellington?",
     "Cook Strait"),
)  # fmt: skip


def own_rows() -> list[dict[str, Any]]:
    """Rows with every column of the public ones."""
    return [
        {"id": number, "question": question, "answer": answer, "conversations": []}
        for number, (question, answer) in enumerate(_QUESTIONS)
    ]
