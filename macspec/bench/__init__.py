"""Measuring: recorded traces, published cost curves, and the controller against both."""
