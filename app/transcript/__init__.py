"""The conversation as it is shown: rows of turns, drawn when they come near the screen."""
