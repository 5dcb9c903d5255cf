"""`Budget`: what one command may spend on an evaluation before it starts no more rollouts."""

from __future__ import annotations

from verifiers.errors import ConfigError
from verifiers.eval import wording
from verifiers.eval.config import EvalConfig
from verifiers.records import RolloutRecord


class Budget:
    """Counts what finished rollouts used. Rollouts that run when it is spent still end, and go beyond it."""

    def __init__(self, config: EvalConfig, *, has_prices: bool) -> None:
        """Raises ConfigError for a limit on the cost of a model without prices."""
        self.max_cost, self.max_tokens, self.limit_s = config.max_cost, config.max_total_tokens, config.time_limit
        if self.max_cost is not None and not has_prices:
            raise ConfigError(
                "--max-cost needs the model's prices, and none are known: put input_price and output_price into its "
                "entry of endpoints.toml, or limit the tokens by --max-total-tokens"
            )
        self.tokens, self.cost = 0, 0.0
        self.spent: str | None = None  # which limit was reached, in words

    def add(self, record: RolloutRecord) -> bool:
        """Whether the budget is spent by now."""
        self.tokens += (record.usage.prompt or 0) + (record.usage.completion or 0)
        self.cost += record.usage.cost or 0.0
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            self.spent = f"{self.tokens:,} of {self.max_tokens:,} tokens are used (--max-total-tokens)"
        elif self.max_cost is not None and self.cost >= self.max_cost:
            self.spent = f"{wording.money(self.cost)} of {wording.money(self.max_cost)} are spent (--max-cost)"
        return self.spent is not None

    def run_out_of_time(self) -> None:
        assert self.limit_s is not None
        self.spent = f"{self.limit_s:g} s have passed (--time-limit)"
