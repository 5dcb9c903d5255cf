"""Images in messages: what a library hands over becomes, once, the part of a message that every server takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAGIC = ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp"))


def is_image(value: Any) -> bool:
    """Whether it is an image of Pillow, which need not be installed to ask."""
    return hasattr(value, "tobytes") and hasattr(value, "save") and hasattr(value, "mode")


def image_part(image: Any) -> dict[str, Any]:
    """The part of a message that shows an image: one of Pillow, the bytes of a file, or a URL of any kind."""
    return {"type": "image_url", "image_url": {"url": image if isinstance(image, str) else data_url(image)}}


def data_url(image: Any) -> str:
    """An image's whole content as a URL. Photographs stay JPEG, everything else becomes PNG.

    >>> data_url(b"\\x89PNG")
    'data:image/png;base64,iVBORw=='
    """
    import base64

    if isinstance(image, (bytes, bytearray)):
        media = next((media for magic, media in _MAGIC if image.startswith(magic)), "application/octet-stream")
        return f"data:{media};base64,{base64.b64encode(image).decode()}"
    import io

    file = io.BytesIO()
    is_photograph = getattr(image, "format", None) == "JPEG" and image.mode in ("RGB", "L")
    if not is_photograph and image.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        image = image.convert("RGB")  # what PNG has no form for, such as CMYK
    image.save(file, **({"format": "JPEG", "quality": 95} if is_photograph else {"format": "PNG"}))
    return data_url(file.getvalue())


def as_part(part: Any) -> Any:
    """A part of a message's content without the gaps that Arrow fills with None, an image in it as a URL.

    Images are understood alone, as `{"type": "image", "image": …}`, and as or in the `image_url` of a part.
    """
    if is_image(part):
        return image_part(part)
    if not isinstance(part, Mapping):
        return part
    made = {key: value for key, value in part.items() if value is not None}
    given = made.get("image_url", made.get("image"))
    if isinstance(given, Mapping):
        held = next((given[key] for key in ("url", "bytes") if given.get(key) is not None), None)
        rest = {key: value for key, value in given.items() if key not in ("url", "bytes", "path") and value is not None}
    else:
        held, rest = given, {}
    if made.get("type") not in ("image", "image_url"):
        return made
    if isinstance(held, str):  # its address, or the data itself
        url = held
    elif is_image(held) or isinstance(held, (bytes, bytearray)):
        url = data_url(held)
    else:
        return made
    kept = {key: value for key, value in made.items() if key not in ("image", "image_url")}
    return {**kept, "type": "image_url", "image_url": {**rest, "url": url}}


def shown(result: Any) -> list[Any] | None:
    """A tool's result as parts if it is an image, or a list with images among texts and parts; else `None`."""
    if is_image(result):
        return [image_part(result)]
    if not isinstance(result, (list, tuple)) or not any(map(is_image, result)):
        return None
    return [
        as_part(item) if is_image(item) or isinstance(item, Mapping) else {"type": "text", "text": str(item)}
        for item in result
    ]
