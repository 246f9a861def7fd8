"""A simulated world: a service that faults, a disk that crashes, a clock that jumps, and processes that are killed.

The real planner, executor, state code, provider and error classification run in it; everything outside is a model
that keeps the truth. A history is decided by its seed alone and takes no real time.
"""
