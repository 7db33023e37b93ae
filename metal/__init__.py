"""Metal kernels for verification, each with its Python face."""
