"""Sessions of PHP in memcached, by Debian's php-memcached: many requests, each a process."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

PAGE = """<?php
ini_set('session.save_handler', 'memcached');
ini_set('session.save_path', '127.0.0.1:%s');
ini_set('session.use_cookies', '0');
ini_set('session.gc_maxlifetime', '100');
ini_set('memcached.sess_locking', '1');
ini_set('memcached.sess_binary_protocol', '0');
session_id($argv[1]);
if (!session_start()) { exit(1); }
switch ($argv[2]) {
  case 'add': $_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1; break;
  case 'cart': $_SESSION['cart'] = ['a' => 1, 'b' => [1.5, null, "\\0\\r\\nx"]]; break;
  case 'big': $_SESSION['big'] = str_repeat('x', 500000); break;
  case 'destroy': session_destroy(); exit(0);
  case 'renew': session_regenerate_id(true); break;
}
echo session_id(), ' ', json_encode($_SESSION['count'] ?? null), ' ',
     md5(serialize($_SESSION['cart'] ?? null)), ' ', strlen($_SESSION['big'] ?? '');
"""
REQUESTS = 40


def check(port, folder):
    if shutil.which("php") is None:
        sys.exit("php is not installed: apt-get install php-cli php-memcached")
    page = folder / "page.php"
    page.write_text(PAGE % port)

    def ask(session, what):
        done = subprocess.run(["php", str(page), session, what], text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout.strip().split(" ") if done.returncode == 0 else [done.stdout]

    found, first = {}, f"first{port}"
    empty = ask(first, "show")
    found["a new session is empty"] = empty[:2] == [first, "null"]
    with ThreadPoolExecutor(4) as pool:
        counts = sorted(int(reply[1]) for reply in pool.map(lambda _: ask(first, "add"),
                                                            range(REQUESTS)))
    found["a lock keeps requests apart"] = counts == list(range(1, REQUESTS + 1))
    cart = ask(first, "cart")
    found["values of all kinds come back"] = ask(first, "show")[2] == cart[2] != empty[2]
    ask(first, "big")
    found["a large session comes back"] = ask(first, "show")[3] == "500000"
    renewed = ask(first, "renew")
    found["another id has the data"] = ask(renewed[0], "show")[1:] == renewed[1:]
    found["the old id has none"] = renewed[0] != first and ask(first, "show")[1] == "null"
    ask(renewed[0], "destroy")
    found["a destroyed session is empty"] = ask(renewed[0], "show")[1] == "null"
    return found
