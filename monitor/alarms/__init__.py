"""Alarms: thresholds over metric values, with states."""
