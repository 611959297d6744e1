#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Debian's kernel for guests, unpacked but not installed: the machine's own boot stays as it is.
#
#   tests/vm/fetch_kernel.sh DIRECTORY    afterwards DIRECTORY/kernel has boot/ and lib/modules/
#
# What is there already is kept.
set -eu

directory=${1:?where to}
mkdir -p "$directory"
cd "$directory"
[ ! -e kernel/complete ] || exit 0

newest() {
    apt-cache depends linux-image-amd64 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p'
}

package=$(newest)
if [ -z "$package" ]; then
    apt-get -q update >/dev/null
    package=$(newest)
fi
if [ -z "$package" ]; then
    echo "fetch_kernel: apt knows no linux-image-amd64: is this Debian 12?" >&2
    exit 1
fi
rm -rf kernel download
mkdir -p kernel download
# _apt may not write here, and then apt says so: downloading as root is what is wanted.
(cd download && apt-get -q -o APT::Sandbox::User=root -o Acquire::Retries=3 download "$package")
dpkg-deb -x download/*.deb kernel
rm -rf download
depmod -b kernel "${package#linux-image-}"
touch kernel/complete
