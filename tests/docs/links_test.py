"""Oracle: the file system. Every relative link of every document leads to a file, and every `path/to/file.ext` in backticks that looks like a
path of this repository exists."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
PATH = re.compile(r"`((?:src|include|tests|tools|docs|cmake|bench|recipes)/[\w./-]+\.(?:h|cpp|py|md|cmake|sh|json))`")
documents = [path for path in ROOT.rglob("*.md") if not {"build", ".venv", ".venv-cuda", "runs"} & set(path.relative_to(ROOT).parts)]
broken = []
for document in documents:
    text = document.read_text()
    for target in LINK.findall(text):
        if "://" not in target and not target.startswith("mailto:") and not (document.parent / target).exists():
            broken.append(f"{document.relative_to(ROOT)}: link to {target}")
    for target in PATH.findall(text):
        if not (ROOT / target).exists():
            broken.append(f"{document.relative_to(ROOT)}: names {target}")
print(*broken, sep="\n")
print(f"{len(documents)} documents, {len(broken)} broken links")
sys.exit(1 if broken or not documents else 0)
