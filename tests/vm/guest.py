# SPDX-License-Identifier: Apache-2.0
"""Guests: Debian's kernel under QEMU's emulation, with the devices that a test names.

A guest runs one program of this machine, whose files it sees read-only. It needs no image, no
network and no KVM, and is up in about five seconds. The console is shown if it does not go well.

The program has QEMU do something, such as pull a cable, by a line "belay-guest: monitor COMMAND" on
its standard output.
"""
import os
import re
import selectors
import shutil
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
WORK = os.path.join(SOURCE, "build", "vm")
KERNEL = os.path.join(WORK, "kernel")

BOOT_MODULES = ["virtio_pci", "9pnet_virtio", "9p"]  # to see this machine's files

LOG_LINES_SHOWN = 80
MEMORY_MIB = 1536


class GuestFailed(Exception):
    """With what happened in words."""


def release():
    """The version of the guests' kernel."""
    return os.listdir(os.path.join(KERNEL, "lib", "modules"))[0]


def boot_modules():
    """The files of BOOT_MODULES and of what they need, in the order to load them in."""
    base = os.path.join(KERNEL, "lib", "modules", release())
    needs = {}
    with open(os.path.join(base, "modules.dep"), encoding="ascii") as file:
        for line in file:
            path, _, rest = line.partition(":")
            needs[os.path.basename(path)] = (path, rest.split())
    ordered = []

    def add(name):
        if name not in needs:
            return  # built in
        path, others = needs[name]
        for other in others:
            add(os.path.basename(other))
        if path not in ordered:
            ordered.append(path)

    for module in BOOT_MODULES:
        add(module + ".ko")
    return [os.path.join(base, path) for path in ordered]


def make_initramfs(modules):
    """busybox, these modules, and the first process; returns its path."""
    root = os.path.join(WORK, "initramfs")
    shutil.rmtree(root, ignore_errors=True)
    for directory in ("bin", "modules"):
        os.makedirs(os.path.join(root, directory))
    shutil.copy("/bin/busybox", os.path.join(root, "bin"))
    shutil.copy(os.path.join(HERE, "init"), root)
    for module in modules:
        shutil.copy(module, os.path.join(root, "modules"))
    names = subprocess.run(["find", "."], cwd=root, check=True, capture_output=True).stdout
    archive = subprocess.run(["/bin/busybox", "cpio", "-o", "-H", "newc"], cwd=root, input=names,
                             check=True, capture_output=True).stdout
    path = os.path.join(WORK, "initramfs.cpio")
    with open(path, "wb") as file:
        file.write(archive)
    return path


def command(program, arguments, modules, devices, kernel_options, monitor):
    """The QEMU that runs it; `monitor` is the path of the socket that takes commands for it."""
    files = boot_modules()
    names = [os.path.basename(path)[:-len(".ko")] for path in files]
    initramfs = make_initramfs(files)
    options = ["console=ttyS0", "quiet", "panic=-1", "random.trust_cpu=on",
               "belay_boot_modules=" + ",".join(names),
               "belay_modules=" + ",".join(modules), "belay_kernel=" + KERNEL,
               "belay_program=" + program, "belay_arguments=" + ",".join(arguments)]
    return ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35",
            "-smp", "2", "-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config",
            "-display", "none", "-no-reboot", "-serial", "stdio",
            "-monitor", f"unix:{monitor},server=on,wait=off",
            "-kernel", os.path.join(KERNEL, "boot", "vmlinuz-" + release()), "-initrd", initramfs,
            "-append", " ".join(options + kernel_options), *devices,
            "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,"
                       "multidevs=remap"]


def run(name, program, arguments=(), modules=(), devices=(), kernel_options=(), seconds=240,
        show=True):
    """Runs `program` (a path) with the arguments (no spaces, no commas) in a guest of its own.

    Raises GuestFailed unless it exits with 0 within the time. The console goes to
    build/vm/NAME.log, and its end to standard output if that happens and `show` is set.
    """
    log_path = os.path.join(WORK, name + ".log")
    # A socket's path is short, and WORK's need not be.
    directory = tempfile.mkdtemp(prefix="belay-vm-")
    monitor = os.path.join(directory, "monitor")
    words = command(program, list(arguments), list(modules), list(devices), list(kernel_options),
                    monitor)
    # QEMU stays in this process group, so that whoever ends the group ends the guest with it.
    with open(log_path, "wb") as log, subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT) as qemu:
        try:
            text = read_console(qemu, log, time.monotonic() + seconds, monitor)
        finally:
            qemu.kill()
            shutil.rmtree(directory)
    lines = text.replace("\r", "").split("\n")
    ends = [re.fullmatch(r"belay-guest: exit (\d+)", line) for line in lines]
    status = next((int(end[1]) for end in ends if end), None)
    if status == 0:
        return
    if show:
        print("\n".join("    | " + line for line in lines[-LOG_LINES_SHOWN:]))
    if status is None:
        raise GuestFailed(f"{name}: the guest ended, or {seconds} s were over, before the program "
                          f"did; its console is {log_path}")
    raise GuestFailed(f"{name}: the program exited with {status}; the console is {log_path}")


class Monitor:
    """QEMU's, which is told what the guest's program wants of it."""

    WANTED = re.compile(rb"^belay-guest: monitor (.+?)\r*\n", re.MULTILINE)

    def __init__(self, path):
        self.path, self.socket, self.seen = path, None, 0

    def look(self, text):
        """Passes on what the console, of which this is all so far, says for the first time."""
        while found := self.WANTED.search(text, self.seen):
            self.seen = found.end()
            if self.socket is None:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(self.path)
            self.socket.sendall(found[1] + b"\n")

    def close(self):
        if self.socket is not None:
            self.socket.close()


def read_console(qemu, log, until, monitor_path):
    """All that it prints until it ends or the time is over."""
    text = b""
    monitor = Monitor(monitor_path)
    with selectors.DefaultSelector() as selector:
        selector.register(qemu.stdout, selectors.EVENT_READ)
        while selector.select(max(0, until - time.monotonic())):
            piece = os.read(qemu.stdout.fileno(), 65536)
            if not piece:
                break
            log.write(piece)
            log.flush()
            text += piece
            monitor.look(text)
    monitor.close()
    return text.decode(errors="replace")
