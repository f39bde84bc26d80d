"""A job from its plan to its end: start, supervise, restart, and carry the output."""
