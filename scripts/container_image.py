"""Writes a small image for tests as a tar archive, from this machine's files:  python scripts/container_image.py > FILE

A shell, a few tools and this Python with its standard library; no registry is asked.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile

TOOLS = "sh cat chmod cp date dd env false grep head id kill ln ls mkdir mv ps rm sed sleep tail tar touch tr true"
LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "idlelib", "ensurepip", "lib2to3", "tkinter"}
USERS = {
    "etc/passwd": "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/work:/bin/sh\n",
    "etc/group": "root:x:0:\nuser:x:1000:\n",
}


def libraries(path: str) -> set[str]:
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"(/\S+) \(0x", said))


def main() -> None:
    python = os.path.realpath(sys.executable)
    library = sysconfig.get_path("stdlib")
    found = {path for name in TOOLS.split() if (path := shutil.which(name))} | {python}
    modules = {entry.path for entry in os.scandir(f"{library}/lib-dynload")}
    linked = set().union(*(libraries(path) for path in found | modules))
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for path in sorted(found | linked):
            archive.add(
                os.path.realpath(path), path.replace("/bin/", "/usr/bin/") if path.startswith("/bin/") else path
            )
        archive.add(library, library, filter=lambda member: member if is_wanted(member.name) else None)
        add_link(archive, "bin", "usr/bin")
        if "/usr/bin/python3" not in found:
            add_link(archive, "usr/bin/python3", python)
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(folder)
        for name, text in USERS.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


def is_wanted(name: str) -> bool:
    return not LEFT_OUT & set(name.split("/")) and "config-3" not in name and not name.endswith(".a")


def add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    archive.addfile(member)


if __name__ == "__main__":
    main()
