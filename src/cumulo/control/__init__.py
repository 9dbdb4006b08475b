"""The loops that drive what is observed to what is wanted."""
