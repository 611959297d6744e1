# SPDX-License-Identifier: Apache-2.0
"""belayd on real PCI functions: emulated cards, bound to vfio-pci behind an emulated IOMMU and to
uio_pci_generic without one."""
import os
import sys
import time

import guest

INSIDE = os.path.join(guest.HERE, "bound_inside.py")
SLOT = "0000:00:05.0"
# The IOMMU comes before what is behind it.
IOMMU = ["-device", "intel-iommu,intremap=on"]
HUB = ["-netdev", "hubport,hubid=1,id=server", "-netdev", "hubport,hubid=1,id=clients",
       "-device", "virtio-net-pci,netdev=clients,addr=0x6,mac=52:54:00:00:00:06"]


def card(options):
    return HUB + ["-device", options + ",id=card,netdev=server,addr=0x5,mac=52:54:00:00:00:05"]


# A core and half of the memory on each; by the firmware the cards are on neither.
TWO_NODES = [word for node in (0, 1) for word in (
    "-object", f"memory-backend-ram,id=memory{node},size={guest.MEMORY_MIB // 2}M",
    "-numa", f"node,nodeid={node},cpus={node},memdev=memory{node}")]
VIRTIO = "virtio-net-pci,disable-legacy=on,iommu_platform=on,ats=on"

CASES = {
    "virtio-vfio": {
        "arguments": [SLOT, "vfio-pci", "until_interrupt"], "modules": ["vfio-pci", "virtio_net"],
        "devices": IOMMU + card(VIRTIO), "kernel_options": ["intel_iommu=on"]},
    "e1000e-vfio": {
        "arguments": [SLOT, "vfio-pci", "until_interrupt", "1"],
        "modules": ["vfio-pci", "virtio_net"], "devices": IOMMU + card("e1000e") + TWO_NODES,
        "kernel_options": ["intel_iommu=on"]},
    "e1000e-uio": {
        "arguments": [SLOT, "uio_pci_generic", "at_most_500us"],
        "modules": ["uio_pci_generic", "virtio_net"], "devices": card("e1000e")},
}


def self_check():
    """A program that fails, and a guest that does not end, are seen to fail."""
    for name, program, arguments, seconds, said in (
            ("self-check-fails", "/bin/false", [], 60, "exited with 1"),
            ("self-check-hangs", "/bin/sleep", ["600"], 8, "were over")):
        try:
            guest.run(name, program, arguments, seconds=seconds, show=False)
        except guest.GuestFailed as failed:
            if said in str(failed):
                continue
            raise
        raise guest.GuestFailed(f"{name}: nobody noticed")


def main(names):
    failed = 0
    for name in names or ["self-check", *CASES]:
        started = time.monotonic()
        try:
            if name == "self-check":
                self_check()
            else:
                guest.run(name, INSIDE, **CASES[name])
            outcome = "ok  "
        except guest.GuestFailed as error:
            print(error)
            outcome = "FAIL"
            failed += 1
        print(f"{outcome}  {name}: {time.monotonic() - started:.0f} s", flush=True)
    return min(failed, 1)


sys.exit(main(sys.argv[1:]))
