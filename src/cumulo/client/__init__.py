"""The Python SDK over the HTTP API."""
