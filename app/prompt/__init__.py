"""The prompt: its text area and its completions."""
