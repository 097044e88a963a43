"""Downloads from and uploads to the Hugging Face Hub, whose errors become one message each.

The package huggingface_hub is imported only here, and only if needed.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uiat.errors import UserError, first_line

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
NO_ENDS = ("-", ".", ".git", ".safetensors", ".pt", ".pth")
"""Endings that a name must not have: the Hub forbids some, the others are those of weights files."""
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


def is_name(text: str) -> bool:
    """Return whether text can be the name of a model on the Hub, `owner/name`."""
    allowed = len(text) <= 96 and "--" not in text and ".." not in text and not text.endswith(NO_ENDS)
    return allowed and NAME.fullmatch(text) is not None


def download(name: str, files: Sequence[str], revision: str | None = None) -> Path:
    """Download those of these files that a model has, unless they are cached, and return their folder."""
    hub = require_package(f"there is no path {name}, and a download from the Hub")
    with _hub_errors(name, "read", revision):
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(files), library_name="uiat"))


def check_upload(name: str) -> None:
    """Raise an error if an upload must fail: without the package, a valid name, or a token."""
    if not is_name(name):
        raise UserError(f"{name!r} is not a name of a model on the Hub: give owner/name.")
    if require_package("an upload").get_token() is None:
        raise UserError(f"an upload to {name} needs a Hub token with write access: {LOG_IN}.")


def upload(folder: Path, name: str, files: Sequence[str], *, private: bool, message: str) -> str:
    """Upload these files, delete those on the Hub that the folder lacks, and return the URL of the model."""
    hub = require_package("an upload")
    with _hub_errors(name, "written"):
        api = hub.HfApi(library_name="uiat")
        # None: the account's default decides whether a new model is public.
        address = str(api.create_repo(name, private=private or None, exist_ok=True))
        api.upload_folder(
            repo_id=name,
            folder_path=folder,
            allow_patterns=list(files),
            delete_patterns=list(files),
            commit_message=message,
        )
    return address


def require_package(what: str) -> Any:
    """Import huggingface_hub; if it is not installed, the error says what needs it."""
    try:
        import huggingface_hub
    except ImportError:
        raise UserError(f"{what} needs the package huggingface_hub: pip install huggingface_hub.") from None
    return huggingface_hub


@contextmanager
def _hub_errors(name: str, verb: str, revision: str | None = None) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of the package, its HTTP client or the system
        raise UserError(_message(error, name, verb, revision)) from error


def _message(error: BaseException, name: str, verb: str, revision: str | None) -> str:
    """Return a message for an error, recognised by class name and status, which do not depend on the version."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "LocalEntryNotFoundError" in kinds and error.__cause__ is not None:
        return _message(error.__cause__, name, verb, revision)  # it only adds that the model is not cached
    status = getattr(getattr(error, "response", None), "status_code", None)
    if "GatedRepoError" in kinds:
        return f"{name} on the Hub is gated: request access on its page."
    if "RevisionNotFoundError" in kinds:
        return f"{name} on the Hub has no revision {revision!r}: give a branch, tag or commit."
    if verb == "read" and ("RepositoryNotFoundError" in kinds or status in (401, 403, 404)):
        return (
            f"{name} is neither a local folder nor a model on the Hub that you can read: "
            f"check the name; for a private model, {LOG_IN}."
        )
    if status == 401:
        return f"the Hub rejects the token for an upload to {name}: {LOG_IN}."
    if status == 403:
        return f"the token has no write access to {name} on the Hub: use another token, or a name in your account."
    missing = f"there is no path {name}, and " if verb == "read" else ""
    if "OfflineModeIsEnabled" in kinds or "LocalEntryNotFoundError" in kinds:
        return f"{missing}HF_HUB_OFFLINE prevents a request to the Hub for {name}: unset it."
    if kinds & {"TransportError", "ConnectionError", "Timeout", "TimeoutError"}:
        return (
            f"{missing}the Hub cannot be reached for {name} ({first_line(error)}): check the connection, and try again."
        )
    return f"{missing}{name} on the Hub could not be {verb} ({first_line(error)}): try again later."
