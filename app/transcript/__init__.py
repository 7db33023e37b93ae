"""The conversation on screen: rows of turns, drawn when they come near the screen."""
