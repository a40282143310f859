"""Text to ids: one backend a module behind one protocol, and the check that they agree."""
