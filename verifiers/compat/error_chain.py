"""`ErrorChain`: an exception and its causes, as classic code looks at them."""

from __future__ import annotations

from collections.abc import Callable

from verifiers.errors import Error


def get_error_chain(
    error: BaseException | None, parent_type: type[BaseException] = BaseException
) -> list[BaseException]:
    """The error, its cause, the cause of that, and so on, up to the first that is no `parent_type`."""
    chain: list[BaseException] = []
    while isinstance(error, parent_type):
        chain.append(error)
        error = error.__cause__
    return chain


def get_vf_error_chain(error: BaseException) -> list[BaseException]:
    return get_error_chain(error, Error)


class ErrorChain:
    """Equal when the types are; `SomeError in chain` asks whether one of them was such.

    >>> try:
    ...     raise RuntimeError("outer") from ValueError("inner")
    ... except RuntimeError as error:
    ...     str(ErrorChain(error)), ValueError in ErrorChain(error)
    ('RuntimeError -> ValueError', True)
    """

    def __init__(
        self,
        error: BaseException,
        build_error_chain: Callable[[BaseException], list[BaseException]] = get_error_chain,
    ) -> None:
        self.root_error = error
        self.chain = build_error_chain(error)

    @property
    def names(self) -> list[str]:
        return [type(error).__name__ for error in self.chain]

    def __contains__(self, kind: type[BaseException]) -> bool:
        return any(isinstance(error, kind) for error in self.chain)

    def __eq__(self, other: object) -> bool:
        return self.names == other.names if isinstance(other, ErrorChain) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.names))

    def __str__(self) -> str:
        return " -> ".join(self.names)

    def __repr__(self) -> str:
        return " -> ".join(map(repr, self.chain))
