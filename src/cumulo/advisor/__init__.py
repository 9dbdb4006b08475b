"""Which GPU, how many, how long, how much. Pure."""
