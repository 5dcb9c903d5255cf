"""The reference trainer: takes the batches of one data rank, a step at a time, and gives new weights.

Nothing here needs an environment or an inference server: see `trainer.Trainer`. Torch and transformers are loaded only
by the modules that wrap them; `config` loads neither, so that a launcher can check a file without them.
"""
