"""Draw the demo's data: small JPEG files, each with one coloured shape on a noisy ground."""

from __future__ import annotations

import math
import random
from pathlib import Path

from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle", "star")
SIDE_PX = 96
COUNT = 256


def make_pictures(folder: Path, count: int = COUNT) -> None:
    """Write `count` files such as `0007_star.jpg`; the same count gives the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        shape = SHAPES[number % len(SHAPES)]
        picture = draw(shape, random.Random(number))
        picture.save(folder / f"{number:04d}_{shape}.jpg", quality=90)


def draw(shape: str, dice: random.Random) -> Image.Image:
    """Return one picture: a random ground, noise, and the shape at a random place and size."""
    noise = Image.frombytes("L", (SIDE_PX, SIDE_PX), dice.randbytes(SIDE_PX * SIDE_PX))
    ground = Image.new("RGB", (SIDE_PX, SIDE_PX), _colour(dice, 0, 110))
    picture = Image.blend(ground, noise.convert("RGB"), 0.15)
    radius = dice.randint(16, 34)
    x, y = (dice.randint(radius + 2, SIDE_PX - radius - 2) for _ in range(2))
    pen = ImageDraw.Draw(picture)
    colour = _colour(dice, 130, 255)
    if shape == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
    else:
        pen.polygon(_corners(shape, x, y, radius), fill=colour)
    return picture


def _corners(shape: str, x: int, y: int, radius: int) -> list[tuple[float, float]]:
    match shape:
        case "square":
            reaches = [1.0] * 4
        case "triangle":
            reaches = [1.0] * 3
        case "star":
            reaches = [1.0, 0.4] * 5
        case _:
            raise ValueError(f"no such shape: {shape!r}")
    turn = 2 * math.pi / len(reaches)
    return [
        (x + radius * reach * math.sin(turn * k), y - radius * reach * math.cos(turn * k))
        for k, reach in enumerate(reaches)
    ]


def _colour(dice: random.Random, low: int, high: int) -> tuple[int, int, int]:
    return (dice.randint(low, high), dice.randint(low, high), dice.randint(low, high))
