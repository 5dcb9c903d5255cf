"""What the shell of a container is told: to stay alive, to run a program and report on it, to end one, to move files.

Any POSIX shell will do, and no image needs more than `/bin/sh`, `sleep`, `cat`, `mkdir`, `chmod`, `head` and `tar`.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from verifiers.sandbox.outcome import Ending
from verifiers.sandbox.sandbox import WORK

# The first process. It is root's without any capability, so that no program can signal it; it takes in orphans, and
# with it the container ends, also when nobody is left who would close it. Runtimes give a new disk the mode that its
# folder has in the image, so it opens them first.
STAY = f'chmod 1777 /tmp; chmod 1777 {WORK}; sleep "$1" & wait'

# $1 the folder, $2 seconds of processor time or -, then the program. The mark comes by stdin, where the program cannot
# read it; what follows a mark on stderr is ours: the process's number before it, a report after it. The mark on stdout
# says that nothing of the program's is still on its way. Only what the shell itself can do: a full container forks no
# more. In the end the shell takes what the program has left of its stdin, until we hang up: podman that finds nobody to
# write it to hangs up first, and loses output and report.
RUN = r"""
IFS= read -r mark
found=
count() {
  found=0
  for file in "$2" "$3"; do
    if [ -r "$file" ]; then while read -r key value; do [ "$key" = "$1" ] && found=$value; done <"$file"; fi
  done
}
count_all() {
  count oom_kill /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; ooms=$found
  count max /sys/fs/cgroup/pids.events /sys/fs/cgroup/pids/pids.events; forks=$found
}
exec 3>&2 2>/dev/null
tries=0
while [ ! -k WORK ] && [ $tries -lt 40 ]; do sleep 0.05; tries=$((tries + 1)); done
count_all
ooms_before=$ooms forks_before=$forks
printf '\036%s%s\n' "$mark" "$$" >&3
code=1
if cd "$1" 2>&3; then
  if [ "$2" != - ]; then ulimit -S -t "$2"; ulimit -H -t "$(($2 + 1))"; fi
  shift 2
  unset OLDPWD
  (exec "$@" 2>&3 3>&-)
  code=$?
fi
count_all
peak=
for file in /sys/fs/cgroup/memory.peak /sys/fs/cgroup/memory/memory.max_usage_in_bytes; do
  if [ -r "$file" ]; then read -r peak <"$file"; fi
done
printf '\036%s' "$mark"
printf '\036%s%s %s %s %s ' "$mark" "$code" "$((ooms - ooms_before))" "$((forks - forks_before))" "${peak:--}" >&3
times >&3
printf '\036' >&3
while read -r line; do :; done
""".replace("WORK", WORK)

# $1 the number of the shell that runs the program: everything of its session ends, and what descends from it.
KILL = r"""
root=$1
round=0
while [ $round -lt 20 ]; do
  round=$((round + 1))
  victims=" $root "
  more=yes
  alive=
  while [ -n "$more" ]; do
    more=
    for folder in /proc/[0-9]*; do
      pid=${folder#/proc/}
      case "$victims" in *" $pid "*) [ "$pid" = "$root" ] || continue ;; esac
      read -r line 2>/dev/null <"$folder/stat" || continue
      set -- ${line##*) }
      [ "$1" = Z ] && continue
      if [ "$pid" = "$root" ]; then alive=yes; continue; fi
      [ "$4" = "$root" ] || case "$victims" in *" $2 "*) ;; *) continue ;; esac
      victims="$victims$pid "
      more=yes alive=yes
    done 2>/dev/null
  done
  [ -n "$alive" ] || exit 0
  kill -9 $victims 2>/dev/null
done
exit 1
"""

# Files. What cannot be done is said on stderr in the words that `file_error` reads.
READ = r"""
if [ -d "$1" ]; then echo "Is a directory: $1" >&2; exit 1; fi
if [ ! -e "$1" ]; then echo "No such file or directory: $1" >&2; exit 1; fi
if [ ! -f "$1" ]; then echo "Not a regular file: $1" >&2; exit 1; fi
if [ ! -r "$1" ]; then echo "Permission denied: $1" >&2; exit 1; fi
if [ -n "$2" ]; then exec head -c "$2" <"$1"; else exec cat <"$1"; fi
"""
WRITE = r"""
case "$1" in */*) mkdir -p "${1%/*}/" || exit 1 ;; esac
if [ -e "$1" ] && [ ! -f "$1" ] && [ ! -d "$1" ]; then echo "Not a regular file: $1" >&2; exit 1; fi
cat >"$1" && chmod "$2" "$1"
"""
PACK = r"""
if [ ! -e "$1" ]; then echo "No such file or directory: $1" >&2; exit 1; fi
cd "$2" && exec tar -cf - "$3"
"""
WRITE_AND_RUN = 'printf %s "$1" >"$0" && shift && exec "$@"'
UNPACK = 'mkdir -p "$1" && cd "$1" && exec tar -xof -'

_TIMES = re.compile(rb"(\d+)m([\d.]+)s")


class MarkedStream:
    """Takes a stream apart at its mark. What might be the beginning of a mark is held back, nothing else."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._held = b""

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """What came before the mark, and what after it: None while there was none."""
        text = self._held + data
        before, mark, after = text.partition(self._mark)
        if mark:
            self._held = b""
            return before, after
        held = next((n for n in range(min(len(self._mark) - 1, len(text)), 0, -1) if text.endswith(self._mark[:n])), 0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], None

    def rest(self) -> bytes:
        held, self._held = self._held, b""
        return held


@dataclass(frozen=True, slots=True)
class Report:
    """What the shell says of a program that has ended."""

    code: int  # negative: of a signal
    ooms: int
    refused_forks: int
    peak_bytes: int | None
    cpu_s: float | None

    @classmethod
    def read(cls, text: bytes) -> Report:
        """Raises ValueError for what is none."""
        code, ooms, forks, peak, times = text.split(None, 4)
        found = _TIMES.findall(times)
        cpu = sum(int(minutes) * 60 + float(seconds) for minutes, seconds in found[2:4]) if len(found) == 4 else None
        return cls(code_of(int(code)), int(ooms), int(forks), None if peak == b"-" else int(peak), cpu)

    def ending(self, wall_s: float) -> Ending:
        return Ending(
            code=self.code,
            wall_s=wall_s,
            cpu_s=self.cpu_s,
            peak_bytes=self.peak_bytes,
            out_of_memory=self.ooms > 0,
            refused_forks=self.refused_forks > 0,
        )


def code_of(status: int) -> int:
    """A shell's and an engine's word for a signal is 128 and its number."""
    return 128 - status if 128 < status < 128 + signal.NSIG else status


def file_error(text: str) -> OSError:
    """The error that a script above, or the tool in it, told."""
    kinds: dict[str, type[OSError]] = {
        "Is a directory": IsADirectoryError,
        "Not a directory": NotADirectoryError,
        "No such file or directory": FileNotFoundError,
        "nonexistent directory": FileNotFoundError,
        "Permission denied": PermissionError,
    }
    kind = next((error for words, error in kinds.items() if words.lower() in text.lower()), OSError)
    return kind(f"{text.strip() or 'it failed without a word'} (in the sandbox)")
