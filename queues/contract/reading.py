"""A JSON object being read: every key is taken once, with its type checked; what remains is an unknown key. Pure.

A wrong value is noted in the collector and the default returned, so that reading goes on and a person sees every
error at once. `null` counts as not sent.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common.errors import ErrorCollector

BIGGEST_WHOLE = 2_147_483_647  # what an integer column holds
LONGEST_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a value: a stable code, and a sentence that says what would be right."""

    code: str
    message: str


Rule = Callable[[str], Fault | None]


def step(name: str) -> str:
    """One step of a JSON Pointer (RFC 6901), with characters that cannot be shown spelt out."""
    shown = name[:200].encode("utf-8", "backslashreplace").decode()
    return "/" + shown.replace("~", "~0").replace("/", "~1")


class Reader:
    """Reads one object that stands at `pointer`. `finish()` reports the keys that nobody took."""

    def __init__(self, sent: Mapping[str, Any], pointer: str, errors: ErrorCollector) -> None:
        self.sent = sent
        self.pointer = pointer
        self.errors = errors
        self._taken: set[str] = set()

    def at(self, key: str) -> str:
        """The pointer of one of its keys."""
        return f"{self.pointer}{step(key)}"

    def has(self, key: str) -> bool:
        """Whether the key was sent with a value."""
        return self.sent.get(key) is not None

    def fault(self, key: str, code: str, message: str) -> None:
        """Note an error at one of its keys."""
        self.errors.add(self.at(key), code, message)

    def take(self, key: str) -> Any:
        """The raw value, None when it was not sent."""
        self._taken.add(key)
        return self.sent.get(key)

    def required(self, *keys: str) -> None:
        """Note each of the keys that was not sent."""
        for key in keys:
            self._taken.add(key)
            if not self.has(key):
                self.fault(key, "required", _("is required"))

    def finish(self) -> None:
        """Note every key that nobody took, with the nearest known one."""
        for key in self.sent:
            if key not in self._taken:
                self.fault(key, "unknown_field", self._unknown(key))

    def _unknown(self, key: str) -> str:
        near = difflib.get_close_matches(key, self._taken, n=1)
        if near:
            return _("is not a field here; did you mean “{name}”?").format(name=near[0])
        return _("is not a field here")

    # --- single values ---

    def text(
        self, key: str, default: str = "", *, longest: int = LONGEST_TEXT, rule: Rule | None = None
    ) -> str:
        """A string of 1 to `longest` characters that passes `rule`."""
        value = self.take(key)
        if value is None or not self._is_text(self.at(key), value, longest, rule):
            return default
        return str(value)

    def whole(self, key: str, default: int, *, least: int = 0, most: int = BIGGEST_WHOLE) -> int:
        """A whole number within the limits."""
        found = self.optional_whole(key, least=least, most=most)
        return default if found is None else found

    def optional_whole(self, key: str, *, least: int = 0, most: int = BIGGEST_WHOLE) -> int | None:
        """A whole number within the limits, None when it was not sent."""
        value = self.take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.fault(key, "not_an_integer", _("must be a whole number"))
            return None
        if value < least:
            self.fault(key, "too_small", _("must be at least {least}").format(least=least))
            return None
        if value > most:
            self.fault(key, "too_large", _("must be at most {most}").format(most=most))
            return None
        return value

    def flag(self, key: str, default: bool) -> bool:  # noqa: FBT001  it is the value
        """true or false."""
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fault(key, "not_a_boolean", _("must be true or false"))
            return default
        return value

    def choice(self, key: str, default: str, options: Sequence[str]) -> str:
        """One of the options."""
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, str) or value not in options:
            self.fault(
                key, "unknown_choice", _("must be one of {options}").format(options=listed(options))
            )
            return default
        return value

    def moment(self, key: str) -> datetime | None:
        """An RFC 3339 time with an offset, in UTC."""
        value = self.take(key)
        if value is None:
            return None
        try:
            found = datetime.fromisoformat(value) if isinstance(value, str) else None
            aware = found.astimezone(UTC) if found is not None and found.tzinfo else None
        except (ValueError, OverflowError):
            aware = None
        if aware is None:
            self.fault(
                key,
                "not_a_time",
                _("must be a time with its offset, such as 2027-01-31T18:00:00Z"),
            )
        return aware

    # --- collections ---

    def texts(
        self,
        key: str,
        *,
        most: int,
        longest: int = LONGEST_TEXT,
        rule: Rule | None = None,
        empty_ok: bool = False,
    ) -> tuple[str, ...]:
        """An array of strings."""
        value = self.take(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fault(key, "not_an_array", _("must be an array of strings"))
            return ()
        if len(value) > most:
            self.fault(key, "too_many", _("must have at most {most} entries").format(most=most))
            return ()
        good = [
            item
            for index, item in enumerate(value)
            if (empty_ok and item == "")
            or self._is_text(f"{self.at(key)}/{index}", item, longest, rule)
        ]
        return tuple(good)

    def pairs(
        self,
        key: str,
        *,
        most: int,
        key_rule: Rule,
        value_rule: Rule | None = None,
        longest: int = LONGEST_TEXT,
    ) -> dict[str, str]:
        """An object whose values are strings (the empty one too)."""
        value = self.take(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fault(key, "not_an_object", _("must be an object with string values"))
            return {}
        if len(value) > most:
            self.fault(key, "too_many", _("must have at most {most} entries").format(most=most))
            return {}
        return {
            name: text
            for name, text in value.items()
            if self._is_pair(
                f"{self.at(key)}{step(name)}", name, text, key_rule, value_rule, longest
            )
        }

    def objects(self, key: str, *, most: int) -> "tuple[Reader, ...]":
        """An array of objects, each as a reader of its own."""
        value = self.take(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fault(key, "not_an_array", _("must be an array of objects"))
            return ()
        if len(value) > most:
            self.fault(key, "too_many", _("must have at most {most} entries").format(most=most))
            return ()
        readers = []
        for index, item in enumerate(value):
            pointer = f"{self.at(key)}/{index}"
            if isinstance(item, dict):
                readers.append(Reader(item, pointer, self.errors))
            else:
                self.errors.add(pointer, "not_an_object", _("must be an object"))
        return tuple(readers)

    def object(self, key: str) -> "Reader | None":
        """An object as a reader of its own, None when it was not sent."""
        value = self.take(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fault(key, "not_an_object", _("must be an object"))
            return None
        return Reader(value, self.at(key), self.errors)

    # --- checks ---

    def _is_pair(
        self,
        pointer: str,
        name: str,
        value: Any,
        key_rule: Rule,
        value_rule: Rule | None,
        longest: int,
    ) -> bool:
        fault = key_rule(name)
        if fault is not None:
            self.errors.add(pointer, fault.code, fault.message)
            return False
        if value == "":
            return True
        return self._is_text(pointer, value, longest, value_rule)

    def _is_text(self, pointer: str, value: Any, longest: int, rule: Rule | None) -> bool:
        fault = _text_fault(value, longest) or (rule(value) if rule else None)
        if fault is not None:
            self.errors.add(pointer, fault.code, fault.message)
        return fault is None


def _text_fault(value: Any, longest: int) -> Fault | None:
    if not isinstance(value, str):
        return Fault("not_a_string", _("must be a string; put it in quotes"))
    if not value:
        return Fault("empty", _("must not be empty"))
    if len(value) > longest:
        return Fault(
            "too_long",
            _("must have at most {longest} characters, has {length}").format(
                longest=longest, length=len(value)
            ),
        )
    if "\x00" in value or not _is_unicode(value):
        return Fault("invalid_character", _("contains a character that cannot be stored"))
    return None


def _is_unicode(value: str) -> bool:
    """False for half a surrogate pair, which JSON can spell and UTF-8 cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def listed(options: Sequence[str], most: int = 12) -> str:
    """Options as a person reads them; the rest is counted."""
    shown = ", ".join(f"“{option}”" for option in options[:most])
    left = len(options) - most
    return _("{shown} and {left} more").format(shown=shown, left=left) if left > 0 else shown
