"""The client side of an environments hub: sign in, publish, fetch, push results."""
