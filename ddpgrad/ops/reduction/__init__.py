"""Ops that bring elements together: reductions, running reductions, order, counts, norms."""
