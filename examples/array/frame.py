"""Renders one frame of a zoom into the Mandelbrot set as a portable graymap. Standard library only."""

import os
import sys
from pathlib import Path

SIZE, DEPTH = 160, 120


def depth(point: complex) -> int:
    z = 0j
    for step in range(DEPTH):
        z = z * z + point
        if abs(z) > 2:
            return step
    return DEPTH


def main() -> None:
    frame = int(sys.argv[1])
    width = 3.0 * 0.8**frame
    centre = complex(-0.743643, 0.131825)
    rows = bytearray()
    for y in range(SIZE):
        for x in range(SIZE):
            offset = complex(x / SIZE - 0.5, y / SIZE - 0.5) * width
            rows.append(255 * depth(centre + offset) // DEPTH)
    path = Path(os.environ.get("CUMULO_OUTPUT_DIR", ".")) / f"frame-{frame:03d}.pgm"
    path.write_bytes(b"P5 %d %d 255\n" % (SIZE, SIZE) + rows)
    print(f"frame {frame}: {path}")


if __name__ == "__main__":
    main()
