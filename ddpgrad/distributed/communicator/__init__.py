"""Collectives of one rank on arrays: agreement before data moves, and sums in a fixed order."""
