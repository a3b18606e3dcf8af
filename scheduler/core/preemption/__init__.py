"""Whom to stop for whom: rules, victims, proof that it helps."""
