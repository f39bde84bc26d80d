"""Failures of ranks: the reports, their way to the launcher, and the rank to blame."""
