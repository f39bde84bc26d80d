"""Reductions: sums, statistics, cumulative ops, sorting, counts, norms."""
