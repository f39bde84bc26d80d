"""Checkpoints that are whole or invisible, of a run over any number of ranks."""
