"""A local server with OpenAI's protocol, over the engine in its child process."""
