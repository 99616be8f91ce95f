"""Bags: write, read, replay."""
