"""Metric families: pure functions over arrays, and one class per family that streams them."""
