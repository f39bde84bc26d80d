"""Elementwise ops, of one operand or of several with broadcasting."""
