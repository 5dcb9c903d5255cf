"""Training on environments: samples, an inference pool, an asynchronous orchestrator and a trainer.

Nothing here imports torch, transformers, ray or vLLM before it is used.
"""
