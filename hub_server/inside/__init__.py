"""Programs that run inside a sandbox, beside a package that nobody vouches for. The hub reads them as text only."""
