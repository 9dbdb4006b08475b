"""Where a run goes. Pure: a snapshot in, decisions and reasons out; no store, no clock, no randomness."""
