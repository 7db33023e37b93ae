"""Settings, and the folders in which macspec keeps its files."""
