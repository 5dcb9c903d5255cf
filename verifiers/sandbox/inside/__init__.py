"""What runs inside a jail: only the standard library, and nothing else of this package, can be imported there."""
