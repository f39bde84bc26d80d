"""For type checkers: `ddpgrad.distributions` is `ddpgrad.extras.distributions`, by the table in compat/aliases.py."""

from .extras.distributions import *
