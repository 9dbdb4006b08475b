"""HTTP API, authentication, streams, and the console's files."""
