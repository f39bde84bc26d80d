"""For type checkers: `ddpgrad.datasets` is `ddpgrad.extras.datasets`, by the table in compat/aliases.py."""

from .extras.datasets import *
