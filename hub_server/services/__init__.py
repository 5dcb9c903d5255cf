"""What the hub does, whoever asks: permission checks and transactions live here. Nothing here knows HTTP."""
