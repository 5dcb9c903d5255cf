"""The hub for people: pages rendered on the server, over the same services as the API."""
