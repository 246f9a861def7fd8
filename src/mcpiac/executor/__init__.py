"""Runs a plan's actions: schedules, calls, retries, and journals each one."""
