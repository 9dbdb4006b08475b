"""This machine: device backends, sharing modes, runtimes, the supervisor, telemetry, health."""
