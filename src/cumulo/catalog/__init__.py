"""What exists and what it costs: kinds of GPU, MIG layouts, list prices. Data files and their loaders."""
