"""The live panel: the numbers behind it, their rows, and the sliders."""
