# SPDX-License-Identifier: Apache-2.0
"""Guests: Debian's kernel under QEMU's emulation, with the devices that a test names.

A guest runs one program of this machine, whose files it sees read-only. It needs no image, no
network and no KVM, and is up in about five seconds. The console is shown if it does not go well.
"""
import os
import re
import selectors
import shutil
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
WORK = os.path.join(SOURCE, "build", "vm")
KERNEL = os.path.join(WORK, "kernel")

BOOT_MODULES = ["virtio_pci", "9pnet_virtio", "9p"]  # to see this machine's files

LOG_LINES_SHOWN = 80


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


def command(program, arguments, modules, devices, kernel_options):
    """The QEMU that runs it."""
    files = boot_modules()
    names = [os.path.basename(path)[:-len(".ko")] for path in files]
    initramfs = make_initramfs(files)
    options = ["console=ttyS0", "quiet", "panic=-1", "random.trust_cpu=on",
               "belay_boot_modules=" + ",".join(names),
               "belay_modules=" + ",".join(modules), "belay_kernel=" + KERNEL,
               "belay_program=" + program, "belay_arguments=" + ",".join(arguments)]
    return ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35",
            "-smp", "2", "-m", "1536", "-nodefaults", "-no-user-config", "-display", "none",
            "-no-reboot", "-serial", "stdio",
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
    words = command(program, list(arguments), list(modules), list(devices), list(kernel_options))
    # QEMU stays in this process group, so that whoever ends the group ends the guest with it.
    with open(log_path, "wb") as log, subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT) as qemu:
        try:
            text = read_console(qemu, log, time.monotonic() + seconds)
        finally:
            qemu.kill()
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


def read_console(qemu, log, until):
    """All that it prints until it ends or the time is over."""
    text = b""
    with selectors.DefaultSelector() as selector:
        selector.register(qemu.stdout, selectors.EVENT_READ)
        while selector.select(max(0, until - time.monotonic())):
            piece = os.read(qemu.stdout.fileno(), 65536)
            if not piece:
                break
            log.write(piece)
            log.flush()
            text += piece
    return text.decode(errors="replace")
