"""Players that are no models: opponents for evaluation, and the reference."""

from __future__ import annotations

import random
from collections.abc import Callable

import chess

from textarena_chess.game import VALUES

Player = Callable[[chess.Board, random.Random], chess.Move]


def random_move(board: chess.Board, rng: random.Random) -> chess.Move:
    return rng.choice(list(board.legal_moves))


def greedy_move(board: chess.Board, rng: random.Random) -> chess.Move:
    """Mates if it can, else takes the most it can without looking what is taken back."""
    moves = list(board.legal_moves)
    rng.shuffle(moves)
    return max(moves, key=lambda move: _gain(board, move))


def careful_move(board: chess.Board, rng: random.Random) -> chess.Move:
    """Mates if it can, else takes the most it can less the most that is then taken back."""
    moves = list(board.legal_moves)
    rng.shuffle(moves)
    return max(moves, key=lambda move: _gain(board, move) - _best_answer(board, move))


OPPONENTS: dict[str, Player] = {"random": random_move, "greedy": greedy_move, "careful": careful_move}


def _gain(board: chess.Board, move: chess.Move) -> float:
    taken = board.piece_type_at(move.to_square)
    gain = float(VALUES[taken] if taken else 1 if board.is_en_passant(move) else 0)
    gain += VALUES[move.promotion] - 1 if move.promotion else 0
    board.push(move)
    if board.is_checkmate():
        gain = 1000.0
    elif board.is_stalemate() or board.is_repetition(2):
        gain -= 2.5  # a draw is worth less than what leads
    board.pop()
    return gain


def _best_answer(board: chess.Board, move: chess.Move) -> float:
    board.push(move)
    answers = [float(VALUES[board.piece_type_at(m.to_square) or chess.PAWN]) for m in board.generate_legal_captures()]
    board.pop()
    return max(answers, default=0.0)
