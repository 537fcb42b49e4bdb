"""The suite, and parts of it, under sanitizers."""
