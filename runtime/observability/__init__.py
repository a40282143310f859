"""What a run does and how fast."""
