"""Questions in the manner of the public sets, written for this project: for places without a network.

Each is put into the very schema of the set that it stands for, so that it takes the same way into an environment.
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

SHORT = (  # subject, question, reference
    (
        "physics",
        "A car speeds up evenly from rest to 24 m/s within 8 s. How large is its acceleration?",
        "3 m/s^2",
    ),
    ("physics", "A 12 V battery drives a current through a resistor of 48 ohms. How large is the current?", "0.25 A"),
    (
        "physics",
        "A mass $m$ hangs from a spring of stiffness $k$. Give the stretch of the spring at rest in terms of $m$, $g$ "
        "and $k$.",
        r"\frac{mg}{k}",
    ),
    (
        "chemistry",
        "How much water forms when 4 g of hydrogen burn completely? Take 1 and 16 g/mol for H and O.",
        "36 g",
    ),
    (
        "biology",
        "Both parents carry one copy of a recessive allele. What is the probability that a child of theirs shows the "
        "recessive trait?",
        r"\frac{1}{4}",
    ),
    ("chemistry", "A solution has a concentration of hydrogen ions of 0.001 mol/L. What is its pH?", "3"),
    (
        "biology",
        "Which organelle of an animal cell holds the enzymes of the citric acid cycle?",
        "the mitochondrion",
    ),
)
CHOICES = (  # question, the right option, three wrong ones
    (
        "A ball is thrown straight up. Air resistance is neglected. What is its acceleration at the highest point?",
        "It is that of gravity, downwards",
        ("It is zero", "It is that of gravity, upwards", "It changes its sign there"),
    ),
    (
        "The half-life of a substance is 6 hours. Which share of it is left after a day?",
        "1/16",
        ("1/4", "1/8", "1/24"),
    ),
    (
        "A rigid bottle of gas is warmed from 27 to 327 degrees Celsius. By which factor does its pressure grow?",
        "2",
        ("12", "4", "1.5"),
    ),
    (
        "Which bond is broken when a strand of DNA is separated from its partner without being cut?",
        "The hydrogen bond between bases",
        ("The bond between sugar and phosphate", "The bond between base and sugar", "The peptide bond"),
    ),
)
TEN = (  # category, question, ten options, number of the right one
    (
        "physics",
        "A wave travels at 340 m/s and has a frequency of 170 Hz. How long is it?",
        ["0.25 m", "0.5 m", "1 m", "1.5 m", "2 m", "3 m", "4 m", "5 m", "17 m", "510 m"],
        4,
    ),
    (
        "chemistry",
        "How many electrons does a neutral atom of the element with atomic number 17 have in its outer shell?",
        ["0", "1", "2", "3", "4", "5", "6", "7", "8", "17"],
        7,
    ),
    (
        "biology",
        "A sequence of messenger RNA between start and stop has 63 bases. How many amino acids does it code for?",
        ["7", "9", "18", "20", "21", "22", "31", "60", "63", "189"],
        4,
    ),
    (
        "economics",
        "A price falls from 80 to 60. By how many percent does it fall?",
        ["10", "15", "20", "25", "33", "40", "60", "75"],  # some rows have fewer than ten
        3,
    ),
)
EXAM = (  # question, answer, kind, image
    ("How many edges does the graph of the 4-dimensional cube have?", "32", "exactMatch", ""),
    (
        "Which body first became known for rings besides Saturn?\n\nAnswer Choices:\nA. Jupiter\nB. Uranus\nC. Mars\n"
        "D. Venus",
        "B",
        "multipleChoice",
        "",
    ),
    ("Name the particle whose exchange binds quarks to each other.", "the gluon", "exactMatch", ""),
    ("Which leaf is shown?", "an oak's", "exactMatch", "data:image/png;base64,iVBORw0KGgo="),
)


def megascience_rows() -> list[Row]:
    return [
        {
            "question": question,
            "answer": f"The answer is {answer}.",
            "subject": subject,
            "reference_answer": answer,
            "source": "own",
        }
        for subject, question, answer in SHORT
    ]


def gpqa_rows() -> list[Row]:
    return [
        {
            "Question": question,
            "Correct Answer": right,
            **{f"Incorrect Answer {number}": text for number, text in enumerate(wrong, start=1)},
            "Explanation": "",
            "Subdomain": "Own",
            "High-level domain": "Own",
            "Record ID": f"own{number}",
        }
        for number, (question, right, wrong) in enumerate(CHOICES)
    ]


def mmlu_pro_rows() -> list[Row]:
    return [
        {
            "question_id": number,
            "question": question,
            "options": options,
            "answer": "ABCDEFGHIJ"[right],
            "answer_index": right,
            "cot_content": "",
            "category": category,
            "src": "own",
        }
        for number, (category, question, options, right) in enumerate(TEN)
    ]


def hle_rows() -> list[Row]:
    return [
        {
            "id": f"own{number}",
            "question": question,
            "image": image,
            "image_preview": None,
            "answer": answer,
            "answer_type": kind,
            "author_name": "",
            "rationale": "",
            "rationale_image": None,
            "raw_subject": "Own",
            "category": "Other",
            "canary": "",
        }
        for number, (question, answer, kind, image) in enumerate(EXAM)
    ]
