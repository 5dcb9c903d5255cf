"""Problems in the manner of the data set, written for this project: for prompts, and for places without a network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OwnProblem:
    question: str
    working: str
    answer: str

    @property
    def solution(self) -> str:
        """As the public data set writes it."""
        return f"{self.working}\n#### {self.answer}"

    @property
    def reply(self) -> str:
        """As a model should write it."""
        return f"{self.working}\nThe answer is \\boxed{{{self.answer}}}."


# shown as worked examples, never asked
WORKED = (
    OwnProblem(
        "Nora plants 6 rows of 8 leeks. Snails eat a quarter of them. How many leeks are left?",
        "She plants 6 * 8 = 48 leeks.\nThe snails eat 48 / 4 = 12.\nSo 48 - 12 = 36 are left.",
        "36",
    ),
    OwnProblem(
        "A bus ticket costs $3 and a day pass $8. Ivo takes the bus four times. "
        "How many dollars does he save with the day pass?",
        "Four tickets cost 4 * 3 = 12 dollars.\nThe day pass saves 12 - 8 = 4 dollars.",
        "4",
    ),
    OwnProblem(
        "A film lasts 2 hours and 15 minutes and is interrupted by three breaks of 5 minutes each. "
        "How many minutes pass from beginning to end?",
        "The film has 2 * 60 + 15 = 135 minutes.\nThe breaks have 3 * 5 = 15.\n"
        "Together that is 135 + 15 = 150 minutes.",
        "150",
    ),
    OwnProblem(
        "Marek has twice as many stamps as Ada, and together they have 240. How many stamps does Marek have?",
        "Ada has one share and Marek two, three in all.\nA share is 240 / 3 = 80 stamps.\nMarek has 2 * 80 = 160.",
        "160",
    ),
)

TRAIN = (
    OwnProblem(
        "A baker fills 9 trays with 24 rolls each and sells 170 rolls before noon. How many rolls are left?",
        "There are 9 * 24 = 216 rolls.\nAfter noon 216 - 170 = 46 are left.",
        "46",
    ),
    OwnProblem(
        "Lena runs 3 laps of 400 meters on each of 5 days. How many kilometers does she run in all?",
        "A day is 3 * 400 = 1200 meters.\nFive days are 5 * 1200 = 6000 meters, which is 6 kilometers.",
        "6",
    ),
    OwnProblem(
        "A water tank holds 900 liters and is two thirds full. A pump takes out 45 liters a minute. "
        "After how many minutes are 150 liters left?",
        "The tank has 900 * 2 / 3 = 600 liters.\nThe pump must take out 600 - 150 = 450.\n"
        "That takes 450 / 45 = 10 minutes.",
        "10",
    ),
    OwnProblem(
        "A jacket costs $80. Its price is cut by 25%, and Tom pays with a $100 bill. "
        "How many dollars does he get back?",
        "The cut is 80 * 25 / 100 = 20 dollars.\nHe pays 80 - 20 = 60.\nHe gets back 100 - 60 = 40 dollars.",
        "40",
    ),
    OwnProblem(
        "Six friends share a boat for 4 hours at $21 an hour. What does each of them pay in dollars?",
        "The boat costs 4 * 21 = 84 dollars.\nEach pays 84 / 6 = 14 dollars.",
        "14",
    ),
    OwnProblem(
        "A library has 1,250 novels and half as many comics. It gives away 115 of the comics. "
        "How many books of both kinds does it have then?",
        "There are 1250 / 2 = 625 comics.\nAfter that 625 - 115 = 510 are left.\n"
        "Together that is 1250 + 510 = 1760 books.",
        "1,760",
    ),
)

EVAL = (
    OwnProblem(
        "A farmer packs 372 eggs into boxes of 12 and sells each box for $4. How many dollars does he take?",
        "He fills 372 / 12 = 31 boxes.\nHe takes 31 * 4 = 124 dollars.",
        "124",
    ),
    OwnProblem(
        "Priya reads 18 pages on Monday, twice as many on Tuesday and 10 fewer on Wednesday than on Tuesday. "
        "How many pages does she read in the three days?",
        "On Tuesday she reads 2 * 18 = 36 pages.\nOn Wednesday 36 - 10 = 26.\nTogether 18 + 36 + 26 = 80 pages.",
        "80",
    ),
    OwnProblem(
        "A train leaves with 215 passengers. At the first stop 48 get off and 63 get on; at the second 70 get off. "
        "How many passengers are on the train then?",
        "After the first stop there are 215 - 48 + 63 = 230.\nAfter the second 230 - 70 = 160.",
        "160",
    ),
    OwnProblem(
        "Paint for 15 square meters costs $22. A hall has four walls of 45 square meters each. "
        "How many dollars does the paint for the walls cost?",
        "The walls have 4 * 45 = 180 square meters.\nThat is 180 / 15 = 12 times the paint.\n"
        "It costs 12 * 22 = 264 dollars.",
        "264",
    ),
    OwnProblem(
        "Olga is 5 years older than Jan. In 7 years their ages will add up to 49. How old is Olga now?",
        "Now their ages add up to 49 - 2 * 7 = 35.\nTwice Jan's age is 35 - 5 = 30, so he is 15.\nOlga is 15 + 5 = 20.",
        "20",
    ),
    OwnProblem(
        "A machine makes 450 screws in 6 minutes. How many screws do 4 such machines make in an hour?",
        "One machine makes 450 / 6 = 75 a minute.\nIn an hour it makes 75 * 60 = 4500.\nFour make 4 * 4500 = 18000.",
        "18,000",
    ),
)
