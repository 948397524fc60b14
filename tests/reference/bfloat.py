"""bfloat16 by hand: of the two neighbours, the nearer; of two as near, the even one."""

from fractions import Fraction


def float32_of(bits):
    """The exact number of a float32's bits; where infinity stands, the number that would come next."""
    sign, exponent, fraction = bits >> 31, bits >> 23 & 0xFF, bits & 0x7FFFFF
    size = Fraction(fraction, 2**23) * Fraction(2) ** -126
    if exponent:
        size = (1 + Fraction(fraction, 2**23)) * Fraction(2) ** (exponent - 127)
    return -size if sign else size


def narrowed(bits):
    """The 16 bits for a finite float32's 32."""
    below = bits >> 16
    above = below + 1  # away from zero
    down = abs(float32_of(bits) - float32_of(below << 16))
    up = abs(float32_of(above << 16) - float32_of(bits))
    if down == up:
        return below if below % 2 == 0 else above
    return below if down < up else above
