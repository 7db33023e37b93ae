"""What the commands do, each module imported when its command runs, and what they can be asked."""
