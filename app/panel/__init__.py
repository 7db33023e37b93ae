"""The live panel: its numbers, its rows and the sliders."""
