"""What a model is asked in each of the three tasks."""

from __future__ import annotations

from proof.formats import Grade
from proof.rows import ProofRow, shown

_SCALE = """1: complete, every step follows.
0.5: the idea proves the claim, and a part is missing or wrong that does not destroy it.
0: the claim is not proved."""

_GRADE_FORM = """<evaluation>
what you find, step by step
</evaluation>
<issues>
one line for each thing that is wrong, of the form "Step 2: what is wrong and why"; or none
</issues>
<score>0, 0.5 or 1</score>

A score below 1 needs an issue, and a score of 1 has none. Write each part once and nothing after the last."""

PROVE = f"""Prove what is asked. Write your proof in steps, with an empty line between them; it is graded strictly by:

{_SCALE}

Then grade your own proof, by the same scale, as a stranger would: step 1 is its first paragraph. You are paid the score
of your proof times how well your own grade agrees with it, so a gap that you admit costs less than one that you hide.
Answer in this form:

<proof>
your proof
</proof>
{_GRADE_FORM}"""

GRADE = f"""Grade a proof strictly. The claim is true; ask of each step whether it follows, and name the steps that
do not.

{_SCALE}

Naming a step that is sound counts against you. Answer in this form:

{_GRADE_FORM}"""

JUDGE = """A proof was graded, and you judge the grade: are the issues that it names really there, and do they account
for its score?

1: every issue that it names is real, the gap that there is was found, and the score follows.
0.5: a real issue is named together with one that is none.
0: its issues are none, or it misses the gap that there is.

Answer in this form, each part once and nothing after the last:

<analysis>
what you find
</analysis>
<score>0, 0.5 or 1</score>"""


def prove_question(row: ProofRow) -> str:
    return f"Problem:\n{row.problem}"


def grade_question(row: ProofRow) -> str:
    return shown(row)


def judge_question(row: ProofRow, grade: Grade) -> str:
    listed = "\n".join(f"Step {issue.step}: {issue.what}" for issue in grade.issues) or "none"
    return f"{shown(row)}\n\nThe grade:\n{grade.evaluation}\nIssues:\n{listed}\nScore: {grade.score:g}"
