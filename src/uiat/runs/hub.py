"""The Hub: downloading the files of a network, and uploading them; whatever goes wrong is one sentence.

The package huggingface_hub is imported here only, and only when a name on the Hub is used.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uiat.errors import UserError, first_line

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
NO_ENDS = ("-", ".", ".git", ".safetensors", ".pt", ".pth")
"""Endings that a name cannot have: the Hub forbids some, the others are those of weights files."""
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


def is_name(text: str) -> bool:
    """Tell whether a text can be the name of a model on the Hub, `owner/name`."""
    allowed = len(text) <= 96 and "--" not in text and ".." not in text and not text.endswith(NO_ENDS)
    return allowed and NAME.fullmatch(text) is not None


def download(name: str, files: Sequence[str], revision: str | None = None) -> Path:
    """Return a folder with these files of a model, as far as it has them; what is in the cache is not loaded again."""
    hub = require_package(f"there is no path {name}, and to look for it on the Hub")
    with _sentences(name, "read", revision):
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(files), library_name="uiat"))


def check_upload(name: str) -> None:
    """Refuse an upload that cannot be made: without the package, a name that the Hub takes, or a token."""
    if not is_name(name):
        raise UserError(f"{name!r} is no name of a model on the Hub: give it as owner/name.")
    if require_package("an upload").get_token() is None:
        raise UserError(f"an upload to {name} needs a token of the Hub that may write: {LOG_IN}.")


def upload(folder: Path, name: str, files: Sequence[str], *, private: bool, message: str) -> str:
    """Upload the named files that the folder has, delete the other named ones on the Hub, and return the address."""
    hub = require_package("an upload")
    with _sentences(name, "written"):
        api = hub.HfApi(library_name="uiat")
        # The account's own setting decides whether a new model can be seen, unless it is to be private.
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
    """Return huggingface_hub; without it, raise an error that says what needs it."""
    try:
        import huggingface_hub
    except ImportError:
        raise UserError(f"{what} needs the package huggingface_hub: pip install huggingface_hub.") from None
    return huggingface_hub


@contextmanager
def _sentences(name: str, verb: str, revision: str | None = None) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of the package, of its HTTP client, of the system
        raise UserError(_sentence(error, name, verb, revision)) from error


def _sentence(error: BaseException, name: str, verb: str, revision: str | None) -> str:
    """Say what went wrong; errors go by name and status, which are the same in all versions of the package."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "LocalEntryNotFoundError" in kinds and error.__cause__ is not None:
        return _sentence(error.__cause__, name, verb, revision)  # it only adds that the cache has nothing either
    status = getattr(getattr(error, "response", None), "status_code", None)
    if "GatedRepoError" in kinds:
        return f"{name} on the Hub is for those only whom its owner lets in: ask for access on its page."
    if "RevisionNotFoundError" in kinds:
        return f"{name} on the Hub has no revision {revision!r}: give a branch, a tag or a commit of it."
    if verb == "read" and ("RepositoryNotFoundError" in kinds or status in (401, 403, 404)):
        return (
            f"there is no {name}, neither a folder here nor a model on the Hub that you may read: "
            f"check the name; for a private one, {LOG_IN}."
        )
    if status == 401:
        return f"the Hub does not take the token for an upload to {name}: {LOG_IN}."
    if status == 403:
        return f"the token may not write {name} on the Hub: take a token with that right, or a name of your own."
    missing = f"there is no path {name}, and " if verb == "read" else ""
    if "OfflineModeIsEnabled" in kinds or "LocalEntryNotFoundError" in kinds:
        return f"{missing}HF_HUB_OFFLINE forbids to ask the Hub for {name}: unset it."
    if kinds & {"TransportError", "ConnectionError", "Timeout", "TimeoutError"}:
        return f"{missing}the Hub cannot be reached for {name} ({first_line(error)}): check the network, and try again."
    return f"{missing}the Hub did not let {name} be {verb} ({first_line(error)}): try again later."
