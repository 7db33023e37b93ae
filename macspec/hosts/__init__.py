"""One target spread over several machines: rank 0 is the engine, the others follow it."""
