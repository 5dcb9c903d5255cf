"""Environments that others' libraries provide, each behind the extra of that library's name."""
