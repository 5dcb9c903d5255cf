"""What `schemathesis` is told of the hub's API beyond its description; imported by it, in its own interpreter."""

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    return (
        value.encode("utf-8", "surrogatepass") if isinstance(value, str) else b"\n".join(repr(value).encode().split())
    )
