"""The floor under the hub's figures: an ASGI application that answers every request with the same bytes of a page's
size. `hub_index.py` asks it in turn with the hub: where the machine is busy, both cost more."""

BODY = b" " * 11_000
HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", str(len(BODY)).encode())],
}


async def app(scope, receive, send):
    if scope["type"] == "http":
        await send(HEAD)
        await send({"type": "http.response.body", "body": BODY})
