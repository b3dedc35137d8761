"""Bytes of a text file that a user made, as text; or what to do about them."""

import codecs

from torchlite.data.pixels import shown
from torchlite.errors import UserError

OTHERS = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
SAVE = "Save it as UTF-8 (in a spreadsheet: “CSV UTF-8”)"


def text_of(content: bytes, file: str) -> str:
    """The text, without a byte order mark. Raises UserError, naming file, row and byte, where it is not UTF-8."""
    for mark, name in OTHERS.items():
        if content.startswith(mark):
            raise UserError(f"{shown(file)} is in {name}, not in UTF-8. {SAVE}.")
    if b"\0" in content:
        place = content.index(b"\0")
        raise UserError(
            f"{shown(file)}, row {_row(content, place)}: byte {place} is zero, as in UTF-16 or a file that is no text. {SAVE}."
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Of the whole file: "utf-8-sig" counts from behind the mark
        place = error.start + (3 if content.startswith(codecs.BOM_UTF8) else 0)
        raise UserError(
            f"{shown(file)}, row {_row(content, place)}: byte {place} (0x{content[place]:02x}) is not UTF-8; "
            f"the file may be Latin-1. {SAVE}."
        ) from error


def _row(content: bytes, place: int) -> int:
    return content.count(b"\n", 0, place) + 1
