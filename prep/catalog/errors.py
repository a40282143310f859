"""The errors of the offline half.

    TokenloomError
    ├── ConfigError       exit 2: the configuration or the command line is wrong
    ├── InputError        exit 3: a source, a file or a record cannot be read
    ├── IntegrityError    exit 4: what lies on disk is not what was written
    │   └── RefusedError  exit 4: continuing would mix two different jobs
    ├── WorkerError       exit 5: a child process died or an encoder failed
    └── StoreError        exit 5: the output cannot be written

They live with the catalog because every leaf package may import it. Each message names the file, row
or field, what was expected, what was found and what to do.
"""

from __future__ import annotations


class TokenloomError(Exception):
    """Root of what users may want to catch; `exit_code` is the command's exit status."""

    exit_code = 1


class ConfigError(TokenloomError):
    """The configuration or the command line cannot be used."""

    exit_code = 2


class InputError(TokenloomError):
    """A source is missing, unreadable, or holds a record that the policies do not accept."""

    exit_code = 3


class IntegrityError(TokenloomError):
    """A catalog, shard or journal is damaged, or an encoder contradicted the reference."""

    exit_code = 4


class RefusedError(IntegrityError):
    """What was asked for differs from what the output folder holds."""


class WorkerError(TokenloomError):
    """A child process died or failed in a way that the input does not explain."""

    exit_code = 5


class StoreError(TokenloomError):
    """The output could not be written: disk full, permission, a store that does not answer."""

    exit_code = 5
