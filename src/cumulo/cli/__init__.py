"""The command line, over the SDK."""
