"""Oracle: the dynamic section of the program. `trireme` starts in milliseconds because it needs nothing but libc and libstdc++."""
import re
import subprocess
import sys

ALLOWED = {"libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
output = subprocess.run(["readelf", "-dW", sys.argv[1]], check=True, text=True, stdout=subprocess.PIPE).stdout
needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output))
print(sys.argv[1], "needs", *sorted(needed))
if "libc.so.6" not in needed:
    sys.exit("libc is not among them: the dynamic section was not read")
sys.exit(f"not allowed: {sorted(needed - ALLOWED)}" if needed - ALLOWED else 0)
