"""Desired, recorded and live state become a Plan: a pure function of values."""

from mcpiac.planner.plan import plan

__all__ = ["plan"]
