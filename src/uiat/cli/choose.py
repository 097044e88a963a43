"""Flags that choose a whole part by its name, before the flags that change the part's fields."""

from collections.abc import Iterable


def take(args: list[str], flags: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Take `--flag VALUE` (or `--flag=VALUE`) out of the words, for exactly these flags; return them and the rest."""
    wanted, chosen, rest = set(flags), {}, []
    words = iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in wanted:
            chosen[flag] = value if equals else next(words, "")
        else:
            rest.append(word)
    return chosen, rest
