"""Judging finished episodes: statistics, detection figures, labels, tables. Imports records only; the live monitor does not need it."""
