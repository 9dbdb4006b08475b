"""Empirical laws: what named work takes on a board, fitted to published results where no roofline would be honest."""
