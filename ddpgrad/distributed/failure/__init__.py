"""Failures of ranks: what a rank reports, how the report reaches the launcher, and which rank is to blame."""
