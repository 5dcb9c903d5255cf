"""`ChessGame`: chess in the forms of TextArena's Chess-v0, on python-chess."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

import chess

SIDES = ("white", "black")
_MOVE = re.compile(r"\[\s*([a-h][1-8][a-h][1-8][qrbn]?)\s*\]", re.IGNORECASE)
VALUES = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9, chess.KING: 0}
CLEAR_LEAD = 3  # pawns; so much more material at the end of the moves is half a win


@dataclass
class ChessGame:
    """One game. A side may make one invalid move in a row; the second loses the game, as in TextArena.

    After `max_plies` the game is over: a lead of 3 pawns or more is half a win, anything else a draw.
    """

    opening: list[str]  # moves made before the players begin
    max_plies: int
    board: chess.Board = field(default_factory=chess.Board)
    invalid_in_a_row: int = 0
    invalid_moves: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    rewards: dict[str, float] | None = None  # of each side, once the game is over
    reason: str = ""

    def __post_init__(self) -> None:
        for move in self.opening:
            self.board.push_uci(move)

    @property
    def side(self) -> str:
        """Whose turn it is."""
        return SIDES[0] if self.board.turn else SIDES[1]

    @property
    def plies(self) -> int:
        return len(self.board.move_stack) - len(self.opening)

    def prompt(self, side: str) -> str:
        return (
            f"You are playing {side.title()} in a game of Chess.\n"
            "Make your moves in UCI format enclosed in square brackets, one in each reply.\n" + self.position()
        )

    def position(self) -> str:
        """The board, the move before, and what can be played."""
        rows = [f" {rank} | {row} |" for rank, row in zip(range(8, 0, -1), str(self.board).split("\n"), strict=True)]
        frame = f"   +{'-' * 17}+"
        moves = ", ".join(f"[{move.uci()}]" for move in self.board.legal_moves)
        last = f"The last move was {self.board.peek().uci()}.\n" if self.board.move_stack else ""
        drawn = "\n".join([frame, *rows, frame, "     a b c d e f g h"])
        return f"{last}Current board:\n{drawn}\nValid moves: {moves}"

    def play(self, text: str) -> str | None:
        """Makes the move in a reply of the side whose turn it is. Returns what is wrong with it, if anything is."""
        moves = {found.lower() for found in _MOVE.findall(text)}
        wrong = None
        if len(moves) != 1:
            wrong = "give one move in square brackets" if not moves else "several different moves were given"
        elif (move := chess.Move.from_uci(moves.pop())) not in self.board.legal_moves:
            wrong = f"{move.uci()} is not possible here"
        else:
            self.board.push(move)
            self.invalid_in_a_row = 0
            self._look_for_the_end()
        if wrong:
            self.invalid_moves[self.side] += 1
            self.invalid_in_a_row += 1
            if self.invalid_in_a_row > 1:
                self.end(self.side, -1.0, f"{self.side} made two invalid moves: {wrong}")
        return wrong

    def end(self, side: str, reward: float, reason: str) -> None:
        """Zero-sum: the other side gets the opposite."""
        other = SIDES[1 - SIDES.index(side)]
        self.rewards, self.reason = {side: reward, other: -reward + 0.0}, reason

    def lead(self) -> int:
        """White's material less Black's, in pawns."""
        return sum(VALUES[p.piece_type] * (1 if p.color else -1) for p in self.board.piece_map().values())

    def _look_for_the_end(self) -> None:
        outcome = self.board.outcome()
        if outcome is not None:
            won = {None: 0.0, chess.WHITE: 1.0, chess.BLACK: -1.0}[outcome.winner]
            self.end(SIDES[0], won, outcome.termination.name.lower().replace("_", " "))
        elif self.plies >= self.max_plies:
            lead = self.lead()
            won = 0.5 if lead >= CLEAR_LEAD else -0.5 if lead <= -CLEAR_LEAD else 0.0
            self.end(SIDES[0], won, f"{self.max_plies} moves were made; material {lead:+d} for white")


def drawn_opening(rng: random.Random, side: str) -> list[str]:
    """A few moves by chance, so that games differ, after which it is `side`'s turn."""
    plies = rng.choice((2, 4, 6) if side == SIDES[0] else (1, 3, 5))
    board = chess.Board()
    while len(board.move_stack) < plies:
        board.push(rng.choice(list(board.legal_moves)))
    return [move.uci() for move in board.move_stack]
