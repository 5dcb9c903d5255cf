"""Environments: the loop that turns a dataset row into a finished rollout."""
