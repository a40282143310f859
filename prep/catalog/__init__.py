"""The contract on disk: token shards, their catalog, fingerprints and atomic commits. See FORMAT.md."""
