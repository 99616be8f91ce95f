"""Adapters around policies and robots, found by the monitor through entry points. The only place that imports torch or a simulator."""
