"""Desired, recorded and live state become a Plan: a pure function of values."""
