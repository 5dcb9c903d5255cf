"""How batches get from the orchestrator to the ranks of a trainer: in memory, as files, or over a socket."""
