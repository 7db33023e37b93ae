"""The prompt: the text area, its completions, and what they send."""
