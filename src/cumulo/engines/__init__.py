"""What really runs instances. One small protocol, and one package per engine."""
