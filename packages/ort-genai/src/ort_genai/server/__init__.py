"""OpenAI's routes over an engine."""
