"""XIDs in text: kernel lines, node events, messages of conditions. The kernel log is the authority on XIDs."""

import json
import re
from dataclasses import dataclass

_KERNEL = re.compile(r"Xid\s*\((?:PCI:)?([0-9A-Fa-f:.]+)\)\s*:\s*(\d{1,3})\b")
_SENTINEL_CODES = re.compile(r"^\s*\[([0-9,\s]+)\]")
_SENTINEL_CODE = re.compile(r"ErrorCode:\s*(\d{1,3})\b")
_REASON_CODE = re.compile(r"XID\[?(\d{1,3})\]?Error", re.IGNORECASE)
_PLAIN = re.compile(r"\bxid(?:\s+error)?[\s:#=]*\[?(\d{1,3})\b", re.IGNORECASE)
_UUID = re.compile(r"\bGPU-[0-9a-fA-F-]{36}\b")
_INDEX = re.compile(r"\bGPU:\s*(\d{1,2})\b")
_ACTION = re.compile(r"Recommended\s?Action\s*[:=]\s*([A-Z_]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Told:
    """What a text says: XIDs, and which GPU as far as it names one. recommended: NVSentinel's action."""

    xids: tuple[int, ...] = ()
    uuid: str = ""
    index: int | None = None
    recommended: str = ""


def read_text(message: str, reason: str = "") -> Told:
    """XIDs and GPU from a message and a reason, in any of the forms that are seen."""
    uuid, index = _UUID.search(message), _INDEX.search(message)
    action = _ACTION.search(message)
    return Told(
        xids=_codes(message, reason),
        uuid=uuid.group() if uuid else "",
        index=int(index.group(1)) if index else None,
        recommended=action.group(1).upper() if action else "",
    )


def _codes(message: str, reason: str) -> tuple[int, ...]:
    if codes := [int(code) for _, code in _KERNEL.findall(message)]:
        return tuple(codes)
    if listed := _SENTINEL_CODES.match(message):
        return tuple(int(part) for part in listed.group(1).split(",") if part.strip())
    if mapped := _codes_of_map(reason):
        return mapped
    for pattern, text in (
        (_SENTINEL_CODE, message),
        (_REASON_CODE, reason),
        (_PLAIN, message),
        (_PLAIN, reason),
    ):
        if found := pattern.search(text):
            return (int(found.group(1)),)
    return ()


def _codes_of_map(reason: str) -> tuple[int, ...]:
    """GKE's reason: a JSON object whose keys (or values) are XIDs."""
    if not reason.lstrip().startswith(("{", "[")):
        return ()
    try:
        parsed = json.loads(reason)
    except ValueError:
        return ()
    texts = json.dumps(parsed)
    return tuple(
        dict.fromkeys(int(code) for code in re.findall(r"(?<![\d.-])(\d{1,3})(?![\d.-])", texts))
    )
