"""What people and programs write to us and read back: the run file and the API's models."""
