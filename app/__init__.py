"""The terminal app; talks to the engine through its worker and never imports MLX."""
