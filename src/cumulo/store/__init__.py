"""What Cumulo keeps: tables, queries and migrations, and beside them blobs and logs as files."""
