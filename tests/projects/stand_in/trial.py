"""The kernels of the small library against Python: exits with 0 if all of it is right."""

import ctypes
import sys

import small

COUNT = 1000
library = ctypes.CDLL(small.LIBRARY)
Floats = ctypes.c_float * COUNT
library.small_scale.restype = library.small_sum.restype = ctypes.c_char_p
wrong = []

values = Floats(*range(COUNT))
said = library.small_scale(values, ctypes.c_float(2.0), COUNT)
if said or list(values) != [2.0 * number for number in range(COUNT)]:
    wrong.append(f"scale: {said.decode() or 'wrong numbers'}")

result = ctypes.c_float()
said = library.small_sum(Floats(*range(COUNT)), ctypes.byref(result), COUNT)
if said or result.value != sum(range(COUNT)):
    wrong.append(f"sum: {said.decode() or result.value}")

multiprocessors = ctypes.c_int()
card = library.small_card(ctypes.byref(multiprocessors))
print(f"the runtime reports {card // 10}.{card % 10} with {multiprocessors.value} multiprocessors")
sys.exit("; ".join(wrong) or 0)
