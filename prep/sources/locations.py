"""Paths and URLs as they may be shown."""

from __future__ import annotations


def public_location(location: str) -> str:
    """A path or URL without what may be secret in it: user, password, query (a signature, say)."""
    if "::" in location:
        return "::".join(map(public_location, location.split("::")))
    scheme, separator, rest = location.partition("://")
    if not separator:
        return location
    host, slash, path = rest.partition("/")
    if scheme in ("http", "https"):
        path = path.partition("?")[0].partition("#")[0]
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
