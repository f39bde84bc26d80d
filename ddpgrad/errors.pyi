"""For type checkers: `ddpgrad.errors` is `ddpgrad.core.errors`, by the table in compat/aliases.py."""

from .core.errors import *
