"""The records of a zip as they lie in the file, for the reader and the writer alike."""

from __future__ import annotations

import struct

LOCAL = struct.Struct("<4s5H3L2H")
"""Before a member: signature, version, flags, method, time, date, CRC, packed, size, lengths of name and extra."""
ENTRY = struct.Struct("<4s6H3L5H2L")
"""In the directory: signature, made by, version, flags, method, time, date, CRC, packed, size, lengths of name, extra
and comment, disk, internal and external attributes, offset."""
END = struct.Struct("<4s4H2LH")
"""At the end: signature, disk, disk of the directory, entries here, entries, size and offset, length of the comment."""
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")

LOCAL_MARK, ENTRY_MARK, END_MARK = b"PK\3\4", b"PK\1\2", b"PK\5\6"
END64_MARK, LOCATOR_MARK, DESCRIPTOR_MARK = b"PK\6\6", b"PK\6\7", b"PK\7\x08"

WIDE = 0xFFFFFFFF
"""Stands in a 32-bit field whose value is in the zip64 extra field."""
MANY = 0xFFFF

STORED, DEFLATED = 0, 8

ENCRYPTED, DESCRIPTOR, STRONG, UTF8, MASKED = 0x1, 0x8, 0x40, 0x800, 0x2000
"""Flags. With DESCRIPTOR the sizes follow the data instead of preceding it."""
PLAIN_FLAGS = DESCRIPTOR | UTF8 | 0x6
"""What an honest wheel may set; 0x6 says how hard the packer tried."""

ZIP64_EXTRA, UNICODE_PATH_EXTRA = 0x0001, 0x7075
END64_REST = END64.size - 12
"""What a zip64 end record says of its own size: without the signature and the number itself."""
