"""For type checkers: `ddpgrad.transforms` is `ddpgrad.extras.transforms`, by the table in compat/aliases.py."""

from .extras.transforms import *
