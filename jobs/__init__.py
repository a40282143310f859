"""The command line and the ways to run jobs."""
