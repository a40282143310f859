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


def nominal_path(location: str) -> str:
    """The path or URL that a file's name and suffix are taken of; for a chained URL, with its archive's."""
    *inner, outer = public_location(location).split("::")
    paths = [layer.partition("://")[2].lstrip("/") for layer in reversed(inner) if "://" in layer]
    return "/".join([outer.removeprefix("file://"), *paths])


def describe_error(error: BaseException, location: str) -> str:
    """What went wrong, without its message if that may repeat what is secret in the location."""
    kind = type(error).__name__
    if public_location(location) == location:
        return f"{kind}: {error}"
    status = getattr(error, "status", None)
    return kind if status is None else f"{kind} {status}"
