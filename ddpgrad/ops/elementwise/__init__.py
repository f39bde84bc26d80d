"""Ops that treat each element by itself, of one operand or of several with broadcasting."""
