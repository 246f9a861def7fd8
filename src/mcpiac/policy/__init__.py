"""Rules over a plan."""
