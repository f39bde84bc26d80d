"""Ops that change shapes: views, joins, splits, diagonals."""
