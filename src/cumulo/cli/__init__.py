"""The command line, over the SDK."""

import gc

# A command imports much and lives for a moment: looking for garbage meanwhile finds none. One that stays, such as
# `logs -f`, still collects.
gc.set_threshold(100_000, 20, 20)
