"""Purchase options, spot price, when to use spot, when to checkpoint. Pure."""
