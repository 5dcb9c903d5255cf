"""Speculative decoding for rollouts, after DAS (arXiv 2511.13841): what can be done about it outside the engine.

The time of a batch of rollouts is that of its longest ones, and prompts come back in each epoch. So the tokens to try
are drafted from earlier rollouts of the same problem (`drafter`), long problems go first and get the larger drafts
(`lengths`, `budgets`), and a replay of saved rollouts says beforehand what that would give (`replay`). The drafting
itself belongs to vLLM (`engine`).
"""
