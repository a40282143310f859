"""Names on disk: the files of a catalog, and the columns that every shard has or may have."""

HEADER = "catalog.json"
SHARDS = "shards.parquet"
SOURCES = "sources.parquet"
TOKENIZER = "tokenizer.json"
JOB_FOLDER = "_job"

RESERVED_COLUMNS = ("tokens", "text_bytes", "source_file", "source_row", "id", "loss_mask")
