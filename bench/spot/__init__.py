"""Spot policies replayed on published traces of spot availability, beside published policies and the optimum."""
