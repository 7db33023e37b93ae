"""Screens over the conversation."""
