"""The hub for programs: package index, uploads, files and the JSON API. Thin routes over the services."""
