"""A program's first lines that make even root obey the permissions of files."""

DROP_RIGHTS = """
import ctypes, sys
# Root may write to everything: give up CAP_DAC_OVERRIDE (bit 1) and CAP_DAC_READ_SEARCH (bit 2).
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None)
libc.capget(header, sets)
for i in range(3):
    sets[i] &= ~0b110
libc.capset(header, sets)
"""
